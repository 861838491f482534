# SPDX-License-Identifier: Apache-2.0
"""Processes that are killed while tasks of an RDD compute on a pool: the job succeeds and leaves no process behind."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.victims import VICTIMS, is_whole, wait_until_gone
from tests.support.flight import pool_status
from tests.support.paths import PYTHON, REPOSITORY
from tests.support.pool import LocalPool
from tests.support.waiting import until
from tests.workers.kills_application import ELEMENTS

_WORKERS = 2
_LONGEST_SECONDS = 300
_PHASES_SECONDS = (0.0, 0.3, 1.0)


class Application:
    """Running application, and the pool on which its Python workers run."""

    def __init__(self, pool: LocalPool, log: Path) -> None:
        self.pool = pool
        command = [str(PYTHON), "-m", "tests.workers.kills_application", pool.tcp_endpoint]
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        assert self.run() == sum(range(ELEMENTS)), log.read_text()[-5000:]

    def run(self, disturb: Callable[[], None] = lambda: None) -> Any:
        """Run the job, disturb it while its tasks compute, and return its outcome."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        assert self._line() == "computes"
        disturb()
        return self._line()

    def _line(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def executors(self) -> list[psutil.Process]:
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline():
                    found.append(process)
        return found

    def launchers(self) -> list[psutil.Process]:
        """Return the launcher's processes, which Spark treats as a daemon and its workers."""
        return [child for executor in self.executors() for child in executor.children()]

    def victim(self, name: str) -> psutil.Process:
        def found() -> psutil.Process | None:
            if name == "launcher":
                return next(iter(self.launchers()), None)
            if name == "executor":
                return next(iter(self.executors()), None)
            return VICTIMS[name](self.pool)

        process = until(f"there is a {name}", found)
        assert process is not None
        return process

    def end(self) -> None:
        """End the application; all its processes have to end."""
        family = psutil.Process(self._process.pid).children(recursive=True)
        self._process.communicate(timeout=_LONGEST_SECONDS)
        assert self._process.returncode == 0
        wait_until_gone(family, [])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    with LocalPool(workers=_WORKERS) as pool, ExitStack() as stack:
        application = Application(pool, tmp_path_factory.mktemp("kills") / "log")
        stack.callback(application.kill)
        yield application
        application.end()


@pytest.mark.campaign
@pytest.mark.timeout(_LONGEST_SECONDS)
@pytest.mark.parametrize("phase_seconds", _PHASES_SECONDS)
@pytest.mark.parametrize("victim", [*VICTIMS, "launcher", "executor"])
def test_a_job_outlives_its_processes(application: Application, victim: str, phase_seconds: float) -> None:
    def kill() -> None:
        time.sleep(phase_seconds)
        application.victim(victim).kill()

    assert application.run(kill) == sum(range(ELEMENTS))
    until("the pool is whole", lambda: is_whole(application.pool, _WORKERS))
    until("no worker is busy", lambda: not pool_status(application.pool.tcp_address).workers_busy)
    # As on stock, a daemon and its idle workers stay for the executor's next tasks.
    until("no further launcher is left", lambda: len(application.launchers()) <= 1 + _WORKERS)
