# SPDX-License-Identifier: Apache-2.0
"""What owners leave in a /dev/shm that all workers of a pool share: whose it is, and who has to be gone first.

The zygote removes what nobody uses (`updraft_server.zygote.shared_memory`). Policy alone.
"""

from collections.abc import Iterable, Sequence

from updraft_server.pool.bindings import Binding
from updraft_server.pool.worker import PooledWorker
from updraft_server.sandbox_layers import SHARED_MEMORY, SandboxLayer


def share_memory(sandbox: Iterable[SandboxLayer]) -> bool:
    """Whether all workers have one /dev/shm."""
    return any(layer.name == SHARED_MEMORY and not layer.is_on for layer in sandbox)


def may_sweep(behind: PooledWorker, running: Iterable[PooledWorker]) -> bool:
    """Whether a worker served a session that has no exchange any more."""
    binding = behind.bound.binding
    if binding is None or binding.owner is None:
        return False
    others = (worker.bound.binding for worker in running)
    return all(other is None or other.owner != binding.owner for other in others)


def leaving(
    ending: Iterable[PooledWorker], running: Iterable[PooledWorker], binding: Binding
) -> Sequence[PooledWorker]:
    """The ending workers that an exchange of `binding` has to wait for.

    It waits for none while another owner is at work: that one sees the same memory anyway.
    """
    if any(_is_anothers(worker, binding) for worker in running):
        return ()
    return [worker for worker in ending if _is_anothers(worker, binding)]


def _is_anothers(worker: PooledWorker, binding: Binding) -> bool:
    """Whether a worker has served a session that is not known to be the one of `binding`."""
    own = worker.bound.binding
    return own is not None and own.owner is not None and (own.owner != binding.owner or not own.is_lasting)
