# SPDX-License-Identifier: Apache-2.0
"""Limits apply between exchanges too; the tests make the looks."""

import itertools
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from fake_pool import FakePool
from front_calls import in_a_thread
from front_harness import Running
from looks import Script, opened

from updraft_server.front.limits import running_exchanges
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.pool.leases import WorkerInfo

MEMORY_BYTES = 1000


@dataclass
class Waiting:
    """Worker between exchanges."""

    id: str
    usage: WorkerUsage | None = None
    tenant: str = ""
    computes_at_rest: bool = False


class Pool(FakePool):
    """Pool with waiting workers, whose usage the test sets."""

    def __init__(self, *waiting: str, script: Script | None = None) -> None:
        super().__init__(script=script or Script())
        self.waiting = {name: Waiting(name) for name in waiting}
        self.used: dict[str, WorkerUsage] = {}
        self.memory_limit_bytes = 4 * MEMORY_BYTES
        self.measured: list[str] = []
        for worker in self.waiting.values():
            self.resting.begin(worker)

    @property
    def workers(self) -> Sequence[WorkerInfo]:
        return [*super().workers, *(WorkerInfo(name, 0, "idle", None) for name in self.waiting)]

    async def measure(self, workers: Sequence[str]) -> Mapping[str, WorkerUsage]:
        self.measured = sorted(workers)
        usage = {worker: self.used.get(worker, WorkerUsage(0, "")) for worker in workers}
        for name in usage.keys() & self.waiting.keys():
            self.waiting[name].usage = usage[name]
        return usage


@pytest.fixture(autouse=True)
def front_that_does_not_look_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_exchanges, "_LIMITS_LOOK_SECONDS", 4_000.0)


async def test_a_worker_that_keeps_too_much_after_its_exchange_is_replaced(running_front: Running) -> None:
    pool = Pool("a", "b")
    async with running_front(pool, worker_memory_bytes=MEMORY_BYTES) as front:
        pool.used["a"] = WorkerUsage(0, "", MEMORY_BYTES + 1)
        await front.front.running.look_at_limits()
        assert pool.replaced == [
            ("a", "it took 1001 bytes of memory with the processes that it started, the limit is 1000")
        ]


async def test_a_worker_is_not_judged_by_what_its_exchange_used(running_front: Running) -> None:
    class EndingMeanwhile(Pool):
        async def measure(self, workers: Sequence[str]) -> Mapping[str, WorkerUsage]:
            usage = await super().measure(workers)
            # An exchange begins after the zygote took the measurement and before the front has the answer.
            self.resting.begin(self.waiting["a"])
            return usage

    pool = EndingMeanwhile("a")
    pool.used["a"] = WorkerUsage(0, "", processes=2)
    async with running_front(pool) as front:
        pool.resting.end(pool.waiting["a"])
        await front.front.running.look_at_limits()
        assert pool.replaced == []
        await front.front.running.look_at_limits()
        assert pool.replaced == [("a", "it runs 2 processes")]


async def test_waiting_workers_make_room_before_an_exchange_has_to_end(running_front: Running) -> None:
    script = Script()
    pool = Pool("a", "b", script=script)
    async with running_front(pool, worker_memory_bytes=4 * MEMORY_BYTES) as front:
        call = await opened(front, script)
        [watched] = front.front.running._watched
        pool.used = {"a": WorkerUsage(0, "", 600), "b": WorkerUsage(0, "", 700)}
        pool.used[watched.relay.worker] = WorkerUsage(0, "", 2000)
        for _ in range(20):
            await front.front.running.look_at_limits()
        assert (pool.replaced, len(pool.stopped)) == ([], 2)
        # The last measurement of resting workers counts.
        assert pool.measured == [watched.relay.worker]
        pool.used[watched.relay.worker] = WorkerUsage(0, "", 2200)
        await front.front.running.look_at_limits()
        assert pool.replaced == [("b", "it holds 700 bytes of memory, and others need them")]
        assert front.front.running._watched
        call.cancel()


async def test_a_worker_that_nobody_has_used_for_long_enough_ends(running_front: Running) -> None:
    pool = Pool("a", "b")
    pool.resting._is_kept = lambda worker: worker.id == "b"
    async with running_front(pool) as front:
        await front.front.running.look_at_limits()
        assert pool.replaced == [("a", "expired")]


async def test_a_worker_that_computes_between_exchanges_is_shown_as_busy(running_front: Running) -> None:
    pool = Pool("a", "b")
    async with running_front(pool, metrics_listen="127.0.0.1:0") as front:
        for seconds in range(3):
            pool.used["a"] = WorkerUsage(0, "", processor_seconds=float(seconds))
            await front.front.running.look_at_limits()
        front.front.sampler.sample()
        workers = front.front.sampler.report.workers
        assert (workers.busy, workers.idle) == (1, 0)
        url = f"http://{front.settings.metrics_address}/metrics"
        text = await in_a_thread(lambda: urllib.request.urlopen(url).read().decode())
        assert 'updraft_workers{state="busy"} 1.0' in text
        assert 'updraft_workers{state="idle"} 0.0' in text


async def test_an_idle_pool_is_measured_as_a_whole_now_and_then_and_not_at_all_in_between(
    running_front: Running,
) -> None:
    pool = Pool("a", "b")
    async with running_front(pool) as front:
        looks = []
        for number in itertools.count():
            pool.measured = []
            await front.front.running.look_at_limits()
            looks.append(pool.measured)
            if number > 12 and pool.measured:
                break
        assert looks[0] == looks[-1] == ["a", "b"]
        assert len(looks) == running_exchanges._LOOKS_TO_ALL + 1
        assert set(map(tuple, looks[12:-1])) == {()}
