# SPDX-License-Identifier: Apache-2.0
"""Files that owners leave in a /dev/shm shared by all workers: when to sweep it, and which workers must end first.

Policy alone. The zygote removes unused files (`updraft_server.linux.hostile_trees`).
"""

from collections.abc import Iterable, Sequence

from updraft_server.pool.bindings import Binding
from updraft_server.pool.worker import PooledWorker
from updraft_server.sandbox_layers import SHARED_MEMORY, SandboxLayer


def share_memory(sandbox: Iterable[SandboxLayer]) -> bool:
    """Return whether all workers share one /dev/shm."""
    return any(layer.name == SHARED_MEMORY and not layer.is_on for layer in sandbox)


def may_sweep(behind: PooledWorker, running: Iterable[PooledWorker]) -> bool:
    """Return whether a worker served a session that has no running exchange."""
    binding = behind.bound.binding
    if binding is None or binding.owner is None:
        return False
    others = (worker.bound.binding for worker in running)
    return all(other is None or other.owner != binding.owner for other in others)


def leaving(
    ending: Iterable[PooledWorker], running: Iterable[PooledWorker], binding: Binding
) -> Sequence[PooledWorker]:
    """Return the ending workers that an exchange of `binding` has to wait for.

    There are none while another owner's exchange runs, because the two share that memory anyway.
    """
    if any(_is_anothers(worker, binding) for worker in running):
        return ()
    return [worker for worker in ending if _is_anothers(worker, binding)]


def _is_anothers(worker: PooledWorker, binding: Binding) -> bool:
    """Return whether a worker has served a session other than that of `binding`, or one that may be another."""
    own = worker.bound.binding
    return own is not None and own.owner is not None and (own.owner != binding.owner or not own.is_lasting)
