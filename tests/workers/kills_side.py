# SPDX-License-Identifier: Apache-2.0
"""Running application whose jobs wait at a point where a test kills processes."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.faults.victims import has_ended, wait_until_gone
from tests.support.paths import PYTHON, REPOSITORY
from tests.support.spark import SHORT_LIVED_JVM
from tests.support.waiting import until
from tests.workers.kills_jobs import KINDS
from tests.workers.kills_stop import Stop

Outcome = dict[str, Any]
_LONGEST_SECONDS = 200
_NOWHERE = "nowhere"


@dataclass(frozen=True)
class Point:
    """Point in a job of one kind.

    Attributes:
        kind: name of the kind of job.
        place: name of the place in its functions.
        step: number of the call at the place.
        is_planning: whether a worker of the driver runs the place.
    """

    kind: str
    place: str
    step: int
    is_planning: bool


def task_point(kind: str, victim: str) -> Point:
    """Return a random point in a task; the kind and the victim are the seed."""
    chance = random.Random(f"{kind}, {victim}")
    place, steps = chance.choice([*KINDS[kind].tasks.items()])
    return Point(kind, place, chance.randrange(steps), is_planning=False)


class Application:
    """Running application with one executor. Every process that the application starts has to end with it."""

    def __init__(self, directory: Path, endpoint: str = "") -> None:
        """Start an application on the pool at `endpoint`; without an endpoint, on stock."""
        directory.chmod(0o777)
        self._directory = directory
        self._log = directory / "log"
        self._jobs = 0
        self._orphans: list[psutil.Process] = []
        self._threads = ThreadPoolExecutor(1)
        variables = {"TMPDIR": str(directory), "SPARK_SUBMIT_OPTS": SHORT_LIVED_JVM, "PYTHONPATH": str(REPOSITORY)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(PYTHON), "-m", "tests.workers.kills_application", endpoint],
                cwd=REPOSITORY,
                env={**os.environ, **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def answer(self, kind: str) -> Any:
        """Run a job undisturbed and return its answer."""
        running, _ = self._started(Point(kind, _NOWHERE, 0, is_planning=False))
        return running.result(_LONGEST_SECONDS)["answer"]

    def outcome(self, point: Point, victims: Callable[[int], Sequence[psutil.Process]]) -> Outcome:
        """Run a job, kill processes when the job has reached the point, and return the job's outcome.

        `victims` receives the process id of the Python worker that waits at the point, and returns the processes to
        kill.
        """
        running, stop = self._started(point)
        until(f"{point} is reached", lambda: stop.is_reached or running.done())
        assert stop.is_reached, running.result()
        killed = victims(stop.pid)
        for process in killed:
            # A launcher has a child that waits for Spark to kill workers. If the launcher is killed, this child lives
            # until Spark ends the daemon.
            self._orphans += process.children(recursive=True)
            process.kill()
        until("they have ended", lambda: all(map(has_ended, killed)))
        stop.go()
        return running.result(_LONGEST_SECONDS)

    def outcome_of_deaths(self, point: Point) -> Outcome:
        """Run a job whose every worker dies when it reaches the point; return the job's outcome."""
        running, _ = self._started(point, is_deadly=True)
        return running.result(_LONGEST_SECONDS)

    def java(self) -> psutil.Process:
        """Return the driver's JVM."""
        return next(child for child in psutil.Process(self._process.pid).children() if child.name() == "java")

    def executor(self) -> psutil.Process:
        """Return the executor's JVM. If the executor was killed, wait until Spark has replaced it."""
        return until("there is an executor", lambda: next(iter(self._executors()), None))

    def end(self) -> None:
        """End the application. All its processes must end, and so must all children of the killed processes."""
        family = [*psutil.Process(self._process.pid).children(recursive=True), *self._orphans]
        self._process.communicate(timeout=_LONGEST_SECONDS)
        assert self._process.returncode == 0, self._end_of_log()
        wait_until_gone(family, [])

    def kill(self) -> None:
        """Kill the application at once."""
        self._process.kill()
        self._process.wait()
        self._threads.shutdown()

    def _started(self, point: Point, *, is_deadly: bool = False) -> tuple[Future[Outcome], Stop]:
        assert self._process.stdin is not None
        self._jobs += 1
        directory = self._directory / f"job-{self._jobs}"
        directory.mkdir()
        # Functions on a pool may run as another user, so let every user write here.
        directory.chmod(0o777)
        stop = Stop(point.place, point.step, directory, is_deadly)
        request = {
            "kind": point.kind,
            "place": stop.place,
            "step": stop.step,
            "directory": str(stop.directory),
            "is_deadly": stop.is_deadly,
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._threads.submit(self._next_outcome), stop

    def _next_outcome(self) -> Outcome:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._end_of_log()
        outcome: Outcome = json.loads(line)
        return outcome

    def _end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-5000:]

    def _executors(self) -> Sequence[psutil.Process]:
        return [child for child in self.java().children(recursive=True) if _is_executor(child)]


def _is_executor(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return any("CoarseGrainedExecutorBackend" in argument for argument in process.cmdline())
    return False
