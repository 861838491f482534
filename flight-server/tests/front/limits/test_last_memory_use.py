# SPDX-License-Identifier: Apache-2.0
"""What is inferred when all workers are lost at once."""

import asyncio
import urllib.request

import pytest
from fake_pool import FakePool, FakeWorker
from flight_messages import all_replies, command_request, echo_command
from front_harness import Running

from updraft_server.front.limits.last_memory_use import LastMemoryUse
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.pool.worker_events import WorkerDeath


def usage(**own_bytes: int) -> dict[str, WorkerUsage]:
    return {worker: WorkerUsage(0, "", number) for worker, number in own_bytes.items()}


def test_the_one_that_grew_most_is_blamed_and_not_the_largest() -> None:
    lost = LastMemoryUse()
    lost.measured(usage(large=500, grower=10), there_is_bytes=1000)
    lost.measured(usage(large=520, grower=400), there_is_bytes=1000)
    # What is left cannot be measured.
    lost.measured({}, there_is_bytes=1000)
    assert "inferred: the workers ran out of memory, and the function f grew most, by 390 bytes to 400" in (
        lost.inference("grower", "f")
    )
    assert "because of another exchange" in lost.inference("large", "f")
    assert [lost.is_blamed(worker) for worker in ("grower", "large", "")] == [True, False, False]


@pytest.mark.parametrize("own_bytes", [{}, {"a": 100, "b": 399}])
def test_workers_that_used_little_memory_were_lost_for_another_reason(own_bytes: dict[str, int]) -> None:
    lost = LastMemoryUse()
    lost.measured(usage(**own_bytes), there_is_bytes=1000)
    assert not lost.inference("b", "f")
    assert not lost.is_blamed("b")


def test_a_worker_that_came_later_says_nothing_of_memory() -> None:
    lost = LastMemoryUse()
    lost.measured(usage(a=900), there_is_bytes=1000)
    assert not lost.inference("b", "f")


@pytest.mark.parametrize(("status", "is_inferred"), [(None, True), (-9, False)])
async def test_the_client_of_a_worker_that_went_with_all_is_told_the_inference(
    running_front: Running, status: int | None, is_inferred: bool
) -> None:
    async def waits(worker: FakeWorker) -> None:
        await worker.receive()
        began.set()
        await asyncio.Event().wait()

    began = asyncio.Event()
    pool = FakePool(script=waits)
    pool.memory_limit_bytes = 1_000_000
    pool.usage = lambda: WorkerUsage(0, "", own_bytes=600_000)
    async with running_front(pool) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        await began.wait()
        await front.front.running.look_at_limits()
        pool.leases[-1].die(WorkerDeath(status))
        error = (await all_replies(call))[1]
        assert error is not None
        assert ("inferred: the workers ran out of memory" in error.details()) == is_inferred
        assert front.front.running.out_of_memory == {"worker": 0, "pool": 0, "container": int(is_inferred)}


@pytest.mark.parametrize(
    ("own_bytes", "ended_by"),
    [(1001, "worker"), (900, "pool"), (500, "")],
    ids=["its own limit", "that of all together", "none"],
)
async def test_workers_that_end_for_their_memory_are_counted_once(
    running_front: Running, own_bytes: int, ended_by: str
) -> None:
    async def waits(worker: FakeWorker) -> None:
        await worker.receive()
        began.set()
        await asyncio.Event().wait()

    began = asyncio.Event()
    pool = FakePool(script=waits)
    pool.memory_limit_bytes = 1000
    pool.usage = lambda: WorkerUsage(0, "", own_bytes=own_bytes, scratch_bytes=77)
    async with running_front(pool, metrics_listen="127.0.0.1:0", worker_memory_bytes=1000) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        await began.wait()
        for _ in range(2):
            await front.front.running.look_at_limits()
        url = f"http://{front.settings.metrics_address}/metrics"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
        for limit in ("worker", "pool", "container"):
            count = float(limit == ended_by)
            assert f'updraft_workers_out_of_memory_total{{limit="{limit}"}} {count}' in text
        assert ended_by or "updraft_workers_scratch_bytes 77.0" in text
        call.cancel()
