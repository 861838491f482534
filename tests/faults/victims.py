# SPDX-License-Identifier: Apache-2.0
"""Processes of a pool that can be killed, and checks that the pool is whole again."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

import grpc
import psutil

from tests.support.flight import pool_status
from tests.support.pool import LocalPool
from tests.support.waiting import until


def _one_worker(pool: LocalPool) -> psutil.Process | None:
    return next(iter(pool.workers()), None)


VICTIMS: dict[str, Callable[[LocalPool], psutil.Process | None]] = {
    "worker": _one_worker,
    "zygote": LocalPool.zygote,
    "front": LocalPool.front,
}


def kill(pool: LocalPool, victim: str) -> psutil.Process:
    """Kill one process of the pool with SIGKILL."""
    process = until(f"the pool has a {victim}", lambda: VICTIMS[victim](pool))
    process.kill()
    return process


def has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, even if its parent has not reaped it yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def is_whole(pool: LocalPool, workers: int) -> bool:
    """Return whether the pool has a front that answers, a zygote and its workers, busy or idle."""
    assert not has_ended(psutil.Process(pool.pid)), f"the supervisor has given up:\n{pool.log()}"
    # Count live workers here, because the front counts a dead worker until the front learns of the death.
    if pool.zygote() is None or pool.front() is None or len(pool.workers()) < workers:
        return False
    try:
        status = pool_status(pool.tcp_address)
        return status.workers_idle + status.workers_busy >= workers
    except grpc.RpcError:
        return False


def wait_until_whole(pool: LocalPool, victim: psutil.Process, workers: int) -> None:
    """Wait until the killed or stopped process has ended and the pool is whole without it."""

    def whole() -> bool:
        return has_ended(victim) and victim not in (pool.zygote(), pool.front()) and is_whole(pool, workers)

    until("the pool is whole again", whole)


def wait_until_gone(family: Iterable[psutil.Process], addresses: Iterable[str]) -> None:
    """Wait until every process has ended and its addresses are free."""
    until("all have ended", lambda: all(map(has_ended, family)))
    # A dead process keeps its sockets until the kernel has ended its last thread.
    until("the ports are free", lambda: all(map(_can_listen_on, addresses)))


def _can_listen_on(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        # A pool sets this option too, so that ended connections do not block a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
    return True
