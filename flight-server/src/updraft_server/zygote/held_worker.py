# SPDX-License-Identifier: Apache-2.0
"""A worker as the zygote holds it: one that it has forked itself, or has taken over from another zygote."""

import contextlib
import hashlib
import signal
import socket
from dataclasses import dataclass

from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.linux.namespaces import memory_used_bytes
from updraft_server.linux.process_trees import ProcessTree
from updraft_server.linux.tree_sizes import TreeSize


@dataclass(eq=False, slots=True)
class HeldWorker:
    """One process, until it is buried."""

    id: str
    pid: int
    pidfd: int
    front: socket.socket | None
    """Whose it is; None while it waits to be claimed."""
    is_child: bool
    """False for one that an earlier zygote forked: somebody else reaps it."""
    shared_memory: int | None = None
    """A descriptor of its /dev/shm; None where it has none of its own, or an earlier zygote made it."""

    def kill(self) -> None:
        """Send SIGKILL; what the worker has started is ended by whoever reaps it."""
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send it a signal; one that has ended is no mistake."""
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
        """What it uses with all that it has started.

        Args:
            tree: Of its processes, as measured now.
            image_bytes: What every worker begins with.
            container_bytes: What the whole container holds, where that is known.
            scratch: What lies in its directory.
            scratch_room_bytes: What is free on the volume of that.
        """
        # Whoever compares two measurements need not see process ids.
        mark = hashlib.blake2b(repr(tree.ticks).encode(), digest_size=8).hexdigest()
        shared_files_bytes = 0 if self.shared_memory is None else memory_used_bytes(self.shared_memory)
        # Files in /dev/shm are the tree's too as far as its processes have mapped them.
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
