# SPDX-License-Identifier: Apache-2.0
"""Kills while jobs of every kind run in Python workers: outcomes equal stock's, and no resource is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import psutil
import pytest

from tests.faults.victims import VICTIMS
from tests.support.waiting import until
from tests.workers.kills_jobs import KINDS
from tests.workers.kills_launchers import Launched, launchers, listeners
from tests.workers.kills_pool import KilledPool
from tests.workers.kills_side import Application, Outcome, Point, task_point

_LONGEST_SECONDS = 300
# Modules of Spark's daemons on stock: the module of the application's daemon, and that of the driver's planners.
_DAEMONS = ("tests.e2e.warm_daemon", "pyspark.daemon")
# An executor runs two tasks. Each task may have a worker that reads a data source and a worker that writes to one.
_SPARE_WORKERS = 4
_IN_TASKS = [kind for kind in KINDS if KINDS[kind].tasks]
_RECOVERING = [
    (kind, victim) for kind in _IN_TASKS if KINDS[kind].recovers for victim in [*VICTIMS, "launcher", "executor"]
]
_FINAL = [
    (kind, victim) for kind in _IN_TASKS if not KINDS[kind].recovers for victim in ["worker", "launcher", "front"]
]
_PLANNING = [Point(kind, place, 0, is_planning=True) for kind in KINDS for place in KINDS[kind].planning]


class Stock:
    """Application on stock; the test kills its workers and daemons."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._without_worker: dict[Point, Outcome] = {}

    def without_worker(self, point: Point) -> Outcome:
        """Return the outcome of a job whose worker the test kills at the point."""
        if point not in self._without_worker:
            self._without_worker[point] = self._outcome(point, lambda worker: [worker])
        return self._without_worker[point]

    def without_launched(self, point: Point) -> Outcome:
        """Return the outcome of a job after a kill of the process that Spark has started: a daemon or the worker."""
        return self._outcome(point, _launched_for)

    def _outcome(self, point: Point, victims: Callable[[psutil.Process], Sequence[psutil.Process]]) -> Outcome:
        return self._application.outcome(point, lambda pid: victims(psutil.Process(pid)))

    def outcome_of_deaths(self, point: Point) -> Outcome:
        """Return the outcome of a job all of whose workers die at the point."""
        return self._application.outcome_of_deaths(point)


class Updraft:
    """Application on a pool. The test kills processes of both. Neither may keep resources for a killed process."""

    def __init__(self, application: Application, pool: KilledPool) -> None:
        self._application, self._pool = application, pool
        self._before: Sequence[Launched] = [Launched(0, 0), Launched(0, 0)]
        self._listeners = 0

    def remember(self, kind: str) -> None:
        """Run a job undisturbed, and record the largest numbers of idle workers and launchers that remain at rest."""
        self._application.answer(kind)
        self._pool.remember()
        # Keep the larger counts, because a daemon whose launcher was killed lives on without a launcher.
        self._before = [now.most(before) for now, before in zip(self._launched(), self._before, strict=True)]
        self._listeners = max(self._listeners, listeners(self._application.executor()))

    def outcome(self, victim: str, point: Point) -> Outcome:
        """Return the outcome of a job of which the test kills a process at the point."""
        self.remember(point.kind)
        return self._application.outcome(point, lambda pid: self._victims(victim, pid, point))

    def outcome_of_deaths(self, point: Point) -> Outcome:
        """Return the outcome of a job all of whose workers die at the point."""
        self.remember(point.kind)
        return self._application.outcome_of_deaths(point)

    def keeps_nothing(self) -> None:
        """Wait until the pool is whole and idle, and holds nothing of a job. The error lists what is left."""
        excess: list[str] = []

        def is_as_before() -> bool:
            excess[:] = self._pool.excess()
            for launched, before in zip(self._launched(), self._before, strict=True):
                excess.extend(launched.excess(before, _SPARE_WORKERS))
            # Check the executor alone: in the driver, each query of a streaming source leaves a listener, on stock too.
            if (now := listeners(self._application.executor())) > self._listeners:
                excess.append(f"{now} listeners in the executor, not {self._listeners}")
            return not excess

        try:
            until("nothing is left", is_as_before)
        except TimeoutError:
            raise AssertionError("; ".join(excess)) from None

    def _launched(self) -> Sequence[Launched]:
        return [Launched.by(java) for java in (self._application.java(), self._application.executor())]

    def _victims(self, victim: str, pid: int, point: Point) -> Sequence[psutil.Process]:
        if victim == "worker":
            return [psutil.Process(pid)]
        java = self._application.java() if point.is_planning else self._application.executor()
        if victim == "executor":
            return [java]
        if victim == "launcher":
            # One of these launchers serves the worker at the point.
            return launchers(java)
        return [until(f"there is a {victim}", lambda: VICTIMS[victim](self._pool.pool))]


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    with ExitStack() as stack:
        application = Application(tmp_path_factory.mktemp("stock"))
        stack.callback(application.kill)
        yield Stock(application)
        application.end()


@pytest.fixture(scope="module")
def updraft(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Updraft]:
    with KilledPool() as pool, ExitStack() as stack:
        application = Application(tmp_path_factory.mktemp("updraft"), pool.pool.loopback_endpoint)
        stack.callback(application.kill)
        yield Updraft(application, pool)
        application.end()


def _launched_for(worker: psutil.Process) -> Sequence[psutil.Process]:
    parent = worker.parent()
    assert parent is not None
    if parent.name() == "java":
        return [worker]
    # If an earlier test has killed the worker's daemon, Spark reuses the worker, whose parent is now another process.
    return [parent] if any(name in parent.cmdline() for name in _DAEMONS) else []


def _kind(outcome: Outcome) -> Any:
    """Return the answer, or the classes of the error and of its causes."""
    error = outcome.get("error")
    return outcome if error is None else (error["class"], error["causes"])


@pytest.mark.campaign
@pytest.mark.timeout(_LONGEST_SECONDS)
@pytest.mark.parametrize(("kind", "victim"), [*_RECOVERING, *_FINAL])
def test_a_job_fares_with_the_processes_of_a_task_as_on_stock(
    stock: Stock, updraft: Updraft, kind: str, victim: str
) -> None:
    point = task_point(kind, victim)
    if victim == "launcher":
        # A launcher corresponds to a daemon on stock. If a daemon is killed, its workers live on.
        expected = stock.without_launched(point)
        assert "answer" in expected
    else:
        expected = stock.without_worker(point if victim == "worker" else task_point(kind, "worker"))
        assert ("answer" in expected) == KINDS[kind].recovers
    allowed = [_kind(expected)]
    if victim == "front" and KINDS[kind].lasting:
        # If the front dies, the driver's worker dies too. Spark does not restart this worker, but may need it no
        # longer.
        allowed.append(_kind(stock.without_worker(Point(kind, KINDS[kind].lasting, 0, is_planning=True))))
    assert _kind(updraft.outcome(victim, point)) in allowed
    updraft.keeps_nothing()


@pytest.mark.campaign
@pytest.mark.timeout(_LONGEST_SECONDS)
@pytest.mark.parametrize("victim", ["worker", "launcher"])
@pytest.mark.parametrize("point", _PLANNING, ids=lambda point: point.place)
def test_a_query_fares_with_a_worker_of_the_driver_as_on_stock(
    stock: Stock, updraft: Updraft, point: Point, victim: str
) -> None:
    expected = stock.without_launched(point) if victim == "launcher" else stock.without_worker(point)
    assert victim == "launcher" or "error" in expected
    assert _kind(updraft.outcome(victim, point)) == _kind(expected)
    updraft.keeps_nothing()


@pytest.mark.campaign
@pytest.mark.timeout(_LONGEST_SECONDS)
@pytest.mark.parametrize("point", _PLANNING, ids=lambda point: point.place)
def test_a_query_fails_with_the_front_of_a_worker_of_the_driver(updraft: Updraft, point: Point) -> None:
    # Before the worker's first output, the pool reports the reason to Spark as a Python exception. If the worker
    # crashed instead, Spark would not learn the reason.
    assert "error" in updraft.outcome("front", point)
    updraft.keeps_nothing()


@pytest.mark.campaign
@pytest.mark.timeout(_LONGEST_SECONDS)
@pytest.mark.parametrize("kind", ["rdd", "last barrier", "pandas with state", "streaming source"])
def test_a_job_whose_workers_always_die_fails_as_on_stock(stock: Stock, updraft: Updraft, kind: str) -> None:
    point = task_point(kind, "every worker")
    expected, found = stock.outcome_of_deaths(point), updraft.outcome_of_deaths(point)
    assert "error" in expected
    assert _kind(found) == _kind(expected)
    updraft.keeps_nothing()
