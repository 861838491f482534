# SPDX-License-Identifier: Apache-2.0
"""Who is killed in a soak, how often, and how many of each were."""

from __future__ import annotations

import collections
import contextlib
import random
import time
from collections.abc import Callable

import psutil

from tests.programs.soak.services import Place
from tests.support.pool import LocalPool

# Of 20 kills; an executor takes longest to come back, and a job that needs both would never be done.
_WEIGHTS = {"worker": 9, "zygote": 3, "front": 3, "writer": 3, "executor": 2}
# What has just been started has served nobody yet, and to kill it again shows nothing. On a busy machine seconds alone
# do not say when it has: those that listen are spared until they do.
_YOUNG_SECONDS = {"worker": 0.0, "zygote": 1.0, "front": 1.0, "writer": 1.0, "executor": 3.0}
_LISTEN = frozenset({"front", "executor"})


class Kills:
    """SIGKILL for one process at a time."""

    def __init__(self, pools: Place, writers: Place, driver: psutil.Process, seed: int) -> None:
        self.by_victim: collections.Counter[str] = collections.Counter()
        # Seeded, so that the same order can be had again.
        self._chance = random.Random(seed)
        self._find: dict[str, Callable[[], list[psutil.Process]]] = {
            "worker": lambda: _pool(pools).workers(),
            "zygote": lambda: [process for process in [_pool(pools).zygote()] if process],
            "front": lambda: [process for process in [_pool(pools).front()] if process],
            "writer": lambda: writers.first().members(),
            "executor": lambda: executors(driver),
        }

    def kill_one(self) -> None:
        """One of whatever has its turn, or of the others where that is being replaced just now."""
        waiting = dict(_WEIGHTS)
        while waiting:
            victim = self._chance.choices(list(waiting), list(waiting.values()))[0]
            del waiting[victim]
            found = [process for process in self._found(victim) if _has_lived(process, victim)]
            if found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._chance.choice(found).kill()
                    self.by_victim[victim] += 1
                    return

    def never(self) -> list[str]:
        """Victims of which none was killed, in order."""
        return [victim for victim in _WEIGHTS if not self.by_victim[victim]]

    def _found(self, victim: str) -> list[psutil.Process]:
        """Those that can be killed now: of a service that has just ended there are none."""
        try:
            return self._find[victim]()
        except psutil.NoSuchProcess:
            return []


def _has_lived(process: psutil.Process, victim: str) -> bool:
    try:
        if time.time() - process.create_time() < _YOUNG_SECONDS[victim]:
            return False
        sockets = process.net_connections("tcp") if victim in _LISTEN else []
        return victim not in _LISTEN or any(socket.status == psutil.CONN_LISTEN for socket in sockets)
    except psutil.Error:
        return False


def executors(driver: psutil.Process) -> list[psutil.Process]:
    """The executors of a local cluster, which are children of the driver's JVM."""
    found = []
    for process in driver.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any("CoarseGrainedExecutorBackend" in argument for argument in process.cmdline()):
                found.append(process)
    return found


def _pool(pools: Place) -> LocalPool:
    pool = pools.first()
    assert isinstance(pool, LocalPool)
    return pool
