# SPDX-License-Identifier: Apache-2.0
"""Zygote's record of a worker that it has forked, or has taken over from an earlier zygote."""

import contextlib
import hashlib
import signal
import socket
from dataclasses import dataclass

from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.linux.hostile_trees import TreeSize
from updraft_server.linux.namespaces import memory_used_bytes
from updraft_server.linux.process_trees import ProcessTree


@dataclass(eq=False, slots=True)
class HeldWorker:
    """One worker process, until it is buried."""

    id: str
    pid: int
    pidfd: int
    front: socket.socket | None
    """Front that the worker belongs to; None while it waits to be claimed."""
    is_child: bool
    """Whether this zygote forked and reaps the worker; False for one of an earlier zygote."""
    shared_memory: int | None = None
    """Descriptor of the worker's own /dev/shm; None if it has none, or if an earlier zygote made it."""

    def kill(self) -> None:
        """Send SIGKILL. Processes that the worker has started are ended when it is reaped."""
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal to the worker; ignored if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def usage(
        self,
        tree: ProcessTree,
        image_bytes: int,
        container_bytes: int | None,
        scratch: TreeSize,
        scratch_room_bytes: int | None,
    ) -> WorkerUsage:
        """Return what the worker uses, including everything it has started.

        Args:
            tree: The worker's processes, as just measured.
            image_bytes: Memory that every worker starts with.
            container_bytes: Memory that the whole container holds; None if unknown.
            scratch: Size of its scratch directory.
            scratch_room_bytes: Free bytes on the volume of that directory.
        """
        # A hash, because fronts only compare two measurements and need not see process ids.
        mark = hashlib.blake2b(repr(tree.ticks).encode(), digest_size=8).hexdigest()
        shared_files_bytes = 0 if self.shared_memory is None else memory_used_bytes(self.shared_memory)
        # The tree's own bytes already include mapped files in /dev/shm, so add only the unmapped ones.
        own_bytes = max(0, tree.own_bytes - image_bytes) + max(0, shared_files_bytes - tree.shared_bytes)
        if container_bytes is not None:
            own_bytes = min(own_bytes, container_bytes)
        return WorkerUsage(
            tree.memory_bytes,
            mark,
            own_bytes,
            len(tree.ticks),
            tree.processor_seconds,
            tree.threads,
            container_bytes,
            *scratch,
            scratch_room_bytes,
        )
