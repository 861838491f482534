# SPDX-License-Identifier: Apache-2.0
"""Workers between two exchanges; the test supplies measurements and time."""

from dataclasses import dataclass, field

import pytest

from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.pool.resting import _MEASUREMENTS_WHEN_STOPPED, _MOST_BUSY_MEASUREMENTS, RestingWorkers

QUIET = WorkerUsage(0, "", processor_seconds=1.0)
IDLE_SECONDS = 100.0


@dataclass
class Worker:
    id: str
    usage: WorkerUsage | None = None
    is_kept: bool = False
    tenant: str = "tenant"
    computes_at_rest: bool = False


@dataclass
class Pool:
    """Pool that records the events of its workers in order."""

    happened: list[tuple[str, str]] = field(default_factory=list)
    now: float = 0.0

    def resting(self, idle_seconds: float = IDLE_SECONDS) -> RestingWorkers[Worker]:
        return RestingWorkers(
            stop=lambda worker: self.happened.append((worker.id, "stop")),
            go_on=lambda worker: self.happened.append((worker.id, "go on")),
            replace=lambda worker, reason: self.happened.append((worker.id, reason)),
            expire=lambda worker: self.happened.append((worker.id, "expire")),
            is_kept=lambda worker: worker.is_kept,
            idle_seconds=idle_seconds,
            clock=lambda: self.now,
        )


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def resting(pool: Pool) -> RestingWorkers[Worker]:
    return pool.resting()


def looked(resting: RestingWorkers[Worker], *processor_seconds: float, excess: str = "", **used: int) -> None:
    """Look at all workers once for each of these times."""
    for seconds in processor_seconds:
        usage = WorkerUsage(0, "", processor_seconds=seconds, **used)
        resting.measured(dict.fromkeys(["a", "b"], usage), lambda _: excess)


def test_a_quiet_worker_is_stopped_at_the_second_look_and_its_next_exchange_continues_it(
    pool: Pool, resting: RestingWorkers[Worker]
) -> None:
    worker = Worker("a")
    resting.begin(worker)
    looked(resting, 1.0)
    assert (pool.happened, resting.state("a")) == ([], None)
    looked(resting, 1.01)
    assert (pool.happened, resting.state("a")) == ([("a", "stop")], "stopped")
    resting.end(worker)
    assert pool.happened[1:] == [("a", "go on")]
    assert resting.state("a") is None


def test_back_to_back_exchanges_cost_nothing(pool: Pool, resting: RestingWorkers[Worker]) -> None:
    worker = Worker("a")
    for _ in range(3):
        resting.begin(worker)
        looked(resting, 1.0)
        resting.end(worker)
    assert pool.happened == []


def test_a_worker_is_measured_until_it_is_at_rest(resting: RestingWorkers[Worker]) -> None:
    resting.begin(Worker("a"))
    for _ in range(2 + _MEASUREMENTS_WHEN_STOPPED):
        assert resting.unsettled == ["a"]
        looked(resting, 1.0)
    assert resting.unsettled == []


def test_a_worker_that_goes_on_computing_is_replaced(pool: Pool, resting: RestingWorkers[Worker]) -> None:
    resting.begin(Worker("a"))
    looked(resting, *(float(number) for number in range(1 + _MOST_BUSY_MEASUREMENTS)))
    assert (pool.happened, resting.computing, resting.state("a")) == ([], 1, "busy")
    looked(resting, 100.0)
    assert (pool.happened, resting.computing) == ([("a", "it computes")], 0)


def test_short_exchanges_do_not_forgive_computing_in_between(pool: Pool, resting: RestingWorkers[Worker]) -> None:
    worker = Worker("a")
    resting.begin(worker)
    looked(resting, 1.0, 2.0)
    resting.end(worker)
    assert pool.happened == []
    for _ in range(3):
        pool.happened.clear()
        resting.begin(worker)
        assert pool.happened == [("a", "stop")]
        resting.end(worker)
        assert pool.happened == [("a", "stop"), ("a", "go on")]


def test_only_the_last_used_workers_of_a_tenant_may_be_awake(pool: Pool, resting: RestingWorkers[Worker]) -> None:
    for name in ("a", "b", "c"):
        resting.begin(Worker(name))
    resting.begin(Worker("d", tenant="other"))
    resting.stop_all_but(2, "tenant")
    assert pool.happened == [("a", "stop")]
    resting.stop_all_but(2, "tenant")
    assert len(pool.happened) == 1
    resting.stop_all_but(-1, "tenant")
    assert pool.happened == [(name, "stop") for name in ("a", "b", "c")]


def test_threads_that_spin_for_a_moment_are_waited_for(pool: Pool, resting: RestingWorkers[Worker]) -> None:
    resting.begin(Worker("a"))
    looked(resting, 1.0, 1.2, 1.4, 1.41)
    assert pool.happened == [("a", "stop")]


@pytest.mark.parametrize("looks", [2, 2 + _MEASUREMENTS_WHEN_STOPPED])
def test_a_stopped_worker_that_somebody_else_continues_is_replaced(
    pool: Pool, resting: RestingWorkers[Worker], looks: int
) -> None:
    resting.begin(Worker("a"))
    # CPU time used before the first look that found it stopped does not count.
    looked(resting, 1.0, 1.0, *([1.04] * looks))
    looked(resting, 1.14)
    assert pool.happened == [("a", "stop"), ("a", "it used 0.10 seconds of CPU time while it was stopped")]


def test_a_worker_at_rest_that_has_gone_on_is_measured_again(pool: Pool, resting: RestingWorkers[Worker]) -> None:
    resting.begin(Worker("a"))
    looked(resting, *([1.0] * 20))
    assert resting.unsettled == []
    resting.went_on("a")
    resting.went_on("gone")
    assert (resting.unsettled, resting.state("a")) == (["a"], "stopped")
    looked(resting, 1.2)
    assert pool.happened == [("a", "stop"), ("a", "it used 0.20 seconds of CPU time while it was stopped")]


@pytest.mark.parametrize("looks", [0, 1, 2, 20])
def test_limits_hold_however_long_a_worker_has_been_waiting(
    pool: Pool, resting: RestingWorkers[Worker], looks: int
) -> None:
    resting.begin(Worker("a"))
    looked(resting, *([1.0] * looks))
    looked(resting, 1.0, excess="it took too much")
    assert pool.happened[-1] == ("a", "it took too much")
    assert resting.usage == {}
    resting.begin(Worker("b"))
    looked(resting, 1.0, processes=2)
    assert pool.happened[-1] == ("b", "it runs 2 processes")


def test_a_worker_goes_when_nobody_has_used_it_for_long_enough(pool: Pool, resting: RestingWorkers[Worker]) -> None:
    worker, kept = Worker("a"), Worker("b", is_kept=True)
    resting.begin(worker)
    resting.begin(kept)
    pool.now = IDLE_SECONDS - 1
    resting.end(worker)
    resting.begin(worker)
    pool.now += IDLE_SECONDS - 1
    resting.end_expired()
    assert pool.happened == []
    pool.now += 1
    resting.end_expired()
    resting.end_expired()
    assert pool.happened == [("a", "expire")]


def test_sessions_come_in_the_order_of_their_last_exchanges(resting: RestingWorkers[Worker]) -> None:
    first, second = Worker("a"), Worker("b")
    for worker in (first, Worker("operators", is_kept=True), second):
        resting.begin(worker)
    resting.end(first)
    resting.begin(first)
    assert resting.sessions == ["b", "a"]


def test_a_time_of_zero_keeps_none_but_the_operators(pool: Pool) -> None:
    resting = pool.resting(idle_seconds=0.0)
    assert not resting.begin(Worker("a"))
    assert resting.begin(Worker("b", is_kept=True))


def test_a_worker_that_is_asked_something_is_continued_and_stopped_again(
    pool: Pool, resting: RestingWorkers[Worker]
) -> None:
    worker = Worker("a")
    resting.begin(worker)
    resting.wake(worker)
    assert pool.happened == []
    looked(resting, 1.0, 1.0, 1.0)
    resting.wake(worker)
    assert resting.unsettled == ["a"]
    looked(resting, 2.0, 2.0)
    assert pool.happened == [("a", action) for action in ("stop", "go on", "stop")]


def test_after_a_lost_zygote_workers_are_stopped_again(pool: Pool, resting: RestingWorkers[Worker]) -> None:
    worker = Worker("a")
    resting.begin(worker)
    looked(resting, *([1.0] * 20))
    resting.all_go_on()
    looked(resting, 2.0, 2.0)
    assert pool.happened == [("a", "stop"), ("a", "stop")]


def test_what_waiting_workers_hold_is_known_from_their_last_measurement(resting: RestingWorkers[Worker]) -> None:
    resting.begin(Worker("a", usage=QUIET))
    resting.begin(Worker("b"))
    assert resting.usage == {"a": QUIET}
