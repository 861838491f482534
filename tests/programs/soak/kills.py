# SPDX-License-Identifier: Apache-2.0
"""Kills of a soak: the choice of processes, and a count of kills for each kind."""

from __future__ import annotations

import collections
import contextlib
import random
import time
from collections.abc import Callable

import psutil

from tests.programs.soak.services import Place
from tests.support.pool import LocalPool

# Weights of the kinds, out of 20. Executors restart slowest, and with more kills a job that needs both executors would
# never finish.
_WEIGHTS = {"worker": 9, "zygote": 3, "front": 3, "writer": 3, "executor": 2}
# Do not kill a process again before it has served anything, because that proves nothing. On a busy machine, a process's
# age does not show whether it serves, so kill a front or an executor only when it listens.
_YOUNG_SECONDS = {"worker": 0.0, "zygote": 1.0, "front": 1.0, "writer": 1.0, "executor": 3.0}
_LISTEN = frozenset({"front", "executor"})


class Kills:
    """Killer that sends SIGKILL to one process at a time."""

    def __init__(self, pools: Place, writers: Place, driver: psutil.Process, seed: int) -> None:
        self.by_victim: collections.Counter[str] = collections.Counter()
        # Use a seed, so that the order can be repeated.
        self._chance = random.Random(seed)
        self._find: dict[str, Callable[[], list[psutil.Process]]] = {
            "worker": lambda: _pool(pools).workers(),
            "zygote": lambda: [process for process in [_pool(pools).zygote()] if process],
            "front": lambda: [process for process in [_pool(pools).front()] if process],
            "writer": lambda: writers.first().members(),
            "executor": lambda: executors(driver),
        }

    def kill_one(self) -> None:
        """Kill a process of a random kind. If all processes of this kind are being replaced, choose another kind."""
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
        """Return the kinds of processes that were never killed, in order."""
        return [victim for victim in _WEIGHTS if not self.by_victim[victim]]

    def _found(self, victim: str) -> list[psutil.Process]:
        """Return the processes of a kind that can be killed now, or no processes if their service has just ended."""
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
    """Return the executors of a local cluster, which are children of the driver's JVM."""
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
