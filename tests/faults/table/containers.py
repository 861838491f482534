# SPDX-License-Identifier: Apache-2.0
"""Pool in two containers. A test kills one container's processes at once, as the kernel does if memory runs out."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

import grpc
import psutil

from tests.faults.table.fault import ABORTED, NO_CALL, UNAVAILABLE, Fault
from tests.faults.table.functions import computing
from tests.faults.table.scene import Scene
from tests.faults.victims import has_ended
from tests.support.constants import NOTHING
from tests.support.paths import SERVER
from tests.support.pool import LocalPool
from tests.support.service import WITH_ITS_OWNER
from tests.support.waiting import HANG_SECONDS, until


class PoolOfTwo(LocalPool):
    """Front, which starts last, and the side with the workers, which the front needs."""

    def __init__(
        self, *, workers: int, notes: Path, arguments: list[str], constants: Mapping[str, object] = NOTHING
    ) -> None:
        super().__init__(workers=workers, arguments=arguments, constants=constants)
        self._command[self._command.index("serve")] = "front"
        front = Path(arguments[arguments.index("--runtime-directory") + 1])
        self._workers_command = [
            *(*WITH_ITS_OWNER, str(SERVER), "workers", "--session-functions=unsigned"),
            *("--front-directory", str(front), "--runtime-directory", str(front.with_name("workers"))),
            *("--writable-paths", str(notes)),
        ]
        self._workers: subprocess.Popen[bytes] | None = None
        self._workers_log = self.directory / "workers.log"

    def start(self) -> Self:
        if self._workers is None:
            self.start_workers()
        super().start()
        return self

    def start_workers(self) -> None:
        """Start the workers' side when its previous processes have ended."""
        if self._workers is not None:
            self._workers.wait(HANG_SECONDS)
        with self._workers_log.open("ab") as log:
            self._workers = subprocess.Popen(self._workers_command, stdout=log, stderr=log, start_new_session=True)

    def terminate(self) -> int:
        status = super().terminate()
        if self._workers is not None:
            self._workers.wait(HANG_SECONDS)
        return status

    def sides(self) -> dict[str, list[psutil.Process]]:
        """Return the processes of each container; the first process of each list is the parent of the others."""
        pids = {"front": self.pid, "workers": self._workers.pid if self._workers else self.pid}
        return {side: _family(pid) for side, pid in pids.items()}

    def members(self) -> list[psutil.Process]:
        return [member for family in self.sides().values() for member in family]


def rows() -> Iterator[Fault]:
    """Yield a fault for each container and phase."""
    yield Fault("front-container-killed-idle", _killed("front"), NO_CALL, make=PoolOfTwo)
    yield Fault("workers-container-killed-idle", _killed("workers"), NO_CALL, make=PoolOfTwo)
    yield Fault("front-container-killed-computing", _killed_computing("front"), UNAVAILABLE, make=PoolOfTwo)
    yield Fault("workers-container-killed-computing", _killed_computing("workers"), ABORTED, make=PoolOfTwo)


def _killed(side: str) -> Callable[[Scene], None]:
    return lambda scene: _kill(scene, side)


def _killed_computing(side: str) -> Callable[[Scene], grpc.StatusCode]:
    def happens(scene: Scene) -> grpc.StatusCode:
        call = scene.call(computing(scene.notes))
        call.send()
        scene.worker()
        _kill(scene, side)
        return call.ended()

    return happens


def _kill(scene: Scene, side: str) -> None:
    """Kill one container's processes at once, and start the container again as a kubelet does."""
    pool = scene.pool
    assert isinstance(pool, PoolOfTwo)
    family = pool.sides()[side]
    for process in family:
        process.suspend()
    for process in family:
        process.kill()
    until("the container has ended", lambda: all(map(has_ended, family)))
    if side == "workers":
        pool.start_workers()
    else:
        pool.start_again()


def _family(pid: int) -> list[psutil.Process]:
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
