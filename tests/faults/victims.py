# SPDX-License-Identifier: Apache-2.0
"""The processes of a pool that can be killed, and when it is whole again."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import grpc
import psutil

from tests.support.flight import pool_status
from tests.support.pool import LocalPool
from tests.support.waiting import until

# What is promised, and what one kill among several may take on a machine that others load at that moment.
WHOLE_AGAIN_SECONDS = 1.0
WHOLE_AGAIN_BOUND_SECONDS = 3.0


def _one_worker(pool: LocalPool) -> psutil.Process | None:
    return next(iter(pool.workers()), None)


VICTIMS: dict[str, Callable[[LocalPool], psutil.Process | None]] = {
    "worker": _one_worker,
    "zygote": LocalPool.zygote,
    "front": LocalPool.front,
}


def kill(pool: LocalPool, victim: str) -> psutil.Process:
    """SIGKILL one process of the pool."""
    process = until(f"the pool has a {victim}", lambda: VICTIMS[victim](pool), timeout_seconds=10)
    process.kill()
    return process


def assert_whole_in_time(seconds: Sequence[float]) -> None:
    """Each kill within the bound, and the usual one within what is promised."""
    assert max(seconds) <= WHOLE_AGAIN_BOUND_SECONDS
    assert statistics.median(seconds) <= WHOLE_AGAIN_SECONDS


def has_ended(process: psutil.Process) -> bool:
    """True once a process runs no more, whether or not somebody has waited for it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def seconds_until_whole(pool: LocalPool, killed: psutil.Process, workers: int) -> float:
    """Time until the pool has a front, a zygote and its workers again, without the killed process."""
    started = time.monotonic()

    def whole() -> bool:
        assert not has_ended(psutil.Process(pool.pid)), f"the supervisor has given up:\n{pool.log()}"
        if not has_ended(killed):
            return False
        zygote, front = pool.zygote(), pool.front()
        if zygote is None or front is None or killed in (zygote, front):
            return False
        try:
            status = pool_status(pool.tcp_address)
            return status.workers_idle + status.workers_busy >= workers
        except grpc.RpcError:
            return False

    until("the pool is whole again", whole, timeout_seconds=30)
    return time.monotonic() - started
