# SPDX-License-Identifier: Apache-2.0
"""Workers of a zygote: held ones, ended ones that fronts have not heard of, and the orphans that they leave.

A front gives the place of an ended worker to another exchange, which must not meet processes of the previous one: those
have to end before the front is told.
"""

import contextlib
import hashlib
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from updraft_server.ipc.worker_records import WorkerRecords
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.linux.descendants import children, kill_child, reap
from updraft_server.linux.hostile_trees import TreeSize
from updraft_server.linux.namespaces import memory_used_bytes
from updraft_server.linux.out_of_memory import held_bytes
from updraft_server.linux.process_trees import ProcessTree, own_bytes, process_trees
from updraft_server.zygote.scratch import ScratchDirectories

_Watch = Callable[[int, Callable[[], None]], None]
# A living front claims its workers at once; workers unclaimed after this time belong to a front that is gone.
_CLAIM_SECONDS = 10.0
# Killed processes normally end within milliseconds. Processes that keep forking, or that wait for a disk, delay the
# report by at most this time.
_MOST_SECONDS = 0.5


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
    tree: ProcessTree,
    shared_memory: int | None,
    image_bytes: int,
    scratch: TreeSize,
    container_bytes: int | None = None,
    scratch_room_bytes: int | None = None,
) -> WorkerUsage:
    """Return what a worker or model process uses, including everything it has started.

    Args:
        tree: Its processes, as just measured.
        shared_memory: Descriptor of its own /dev/shm; None if it has none.
        image_bytes: Memory that every forked process starts with.
        scratch: Size of its scratch directory.
        container_bytes: Memory that the whole container holds; None if unknown.
        scratch_room_bytes: Free bytes on the volume of that directory.
    """
    # A hash, because fronts only compare two measurements and need not see process ids.
    mark = hashlib.blake2b(repr(tree.ticks).encode(), digest_size=8).hexdigest()
    shared_files_bytes = 0 if shared_memory is None else memory_used_bytes(shared_memory)
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


class HeldWorkers:
    """Workers that a zygote has forked, or has taken over from an earlier one until their front claims them."""

    def __init__(
        self,
        records: WorkerRecords,
        scratch: ScratchDirectories,
        watch: _Watch,
        unwatch: Callable[[int], None],
        on_burial: Callable[[str], None],
    ) -> None:
        """Hold no worker yet.

        Args:
            records: Lists the workers for the zygote that follows.
            scratch: Has the workers' directories.
            watch: Makes the zygote's loop call a function when a pidfd can be read.
            unwatch: The inverse; idempotent.
            on_burial: Called with the id of each worker that has ended.
        """
        self.ends = WorkerEnds()
        self._records = records
        self._scratch = scratch
        self._watch = watch
        self._unwatch = unwatch
        self._on_burial = on_burial
        self._held: dict[str, HeldWorker] = {}
        self._claims_end_seconds = math.inf
        # Memory that every worker starts with, and shares until it writes to it.
        self._image_bytes = own_bytes()

    def __bool__(self) -> bool:
        return bool(self._held)

    @property
    def pids(self) -> set[int]:
        """Process ids of the workers that this process has forked."""
        return {worker.pid for worker in self._held.values() if worker.is_child}

    def of(self, front: socket.socket, name: str) -> HeldWorker | None:
        """Return the worker with this id, if it belongs to this front."""
        worker = self._held.get(name)
        return worker if worker is not None and worker.front is front else None

    def add(self, worker: HeldWorker) -> None:
        """Hold and record a worker that has just been forked; raises OSError and kills it if it cannot be recorded."""
        self._hold(worker)
        try:
            self._records.add(worker.id, worker.pid)
        except OSError:
            worker.kill()
            raise

    def take_over(self) -> None:
        """Take over the workers of a dead zygote, and remove the scratch directories of all others."""
        self._adopt()
        self._scratch.discard_all_but(self._held)

    def claim(self, front: socket.socket, names: Sequence[str], *, is_successor: bool) -> Sequence[str]:
        """Give workers that wait for their front to this one; returns the ids of those that are gone."""
        if is_successor and not self._held.keys() >= set(names):
            # The predecessor retired before the front came here, so it forks no more workers: adopt all that it has
            # left.
            self._adopt()
        known = [self._held[name] for name in names if name in self._held]
        for worker in known:
            if worker.front is None:
                worker.front = front
        return [name for name in names if name not in self._held]

    def end_unclaimed(self) -> None:
        """Kill the workers that no front has claimed in time."""
        if time.monotonic() < self._claims_end_seconds:
            return
        self._claims_end_seconds = math.inf
        for worker in self._held.values():
            if worker.front is None:
                worker.kill()

    def retire(self) -> None:
        """Leave the workers to the zygote that follows, but wait for the ends of those that this one has forked."""
        self._claims_end_seconds = math.inf
        for worker in list(self._held.values()):
            # Continue stopped workers: if their front died before it claims them, they would not notice.
            worker.signal(signal.SIGCONT)
            worker.front = None
            if not worker.is_child:
                self._forget(worker)

    def let_go(self, front: socket.socket) -> None:
        """End the workers of a front that is gone."""
        for worker in [worker for worker in self._held.values() if worker.front is front]:
            worker.kill()
            self._bury(worker)

    def kill_all(self) -> None:
        """Kill every worker."""
        for worker in self._held.values():
            worker.kill()

    def measured(self, front: socket.socket, names: Sequence[str]) -> Mapping[str, WorkerUsage]:
        """Return what those of these workers use that belong to this front."""
        workers = [worker for name in names if (worker := self.of(front, name)) is not None]
        trees = process_trees(worker.pid for worker in workers)
        held, room = held_bytes(), self._scratch.room_bytes()
        return {
            worker.id: usage(
                trees[worker.pid], worker.shared_memory, self._image_bytes, self._scratch.size(worker.id), held, room
            )
            for worker in workers
        }

    def _adopt(self) -> None:
        for survivor in self._records.survivors():
            if survivor.worker in self._held:
                os.close(survivor.pidfd)
                continue
            self._hold(HeldWorker(*survivor, front=None, is_child=False))
            self._claims_end_seconds = time.monotonic() + _CLAIM_SECONDS

    def _hold(self, worker: HeldWorker) -> None:
        self._held[worker.id] = worker
        self._watch(worker.pidfd, lambda: self._reap(worker))

    def _reap(self, worker: HeldWorker) -> None:
        if worker.id in self._held:
            status = self._bury(worker)
            self.ends.add(worker.front, worker.id, status)

    def _bury(self, worker: HeldWorker) -> int | None:
        """Forget a worker that has ended or is being killed; returns its exit status, or None if unknown."""
        self._forget(worker)
        if worker.shared_memory is not None:
            os.close(worker.shared_memory)
        status = reap(worker.pid) if worker.is_child else None
        self._on_burial(worker.id)
        self._records.forget(worker.id)
        self._scratch.discard(worker.id)
        return status

    def _forget(self, worker: HeldWorker) -> None:
        """Stop tracking a worker; if it is alive, it goes on running."""
        del self._held[worker.id]
        self._unwatch(worker.pidfd)
        os.close(worker.pidfd)


class WorkerEnd(NamedTuple):
    """Worker exit to report."""

    front: socket.socket | None
    """Front to tell; None if there is none."""
    worker: str
    status: int | None
    """Exit code, or minus the signal that ended the worker; None if unknown."""
    tell_seconds: float
    """Monotonic time at which the front is told even if processes are left."""


class WorkerEnds:
    """Unreported worker exits of a zygote, in order."""

    def __init__(self) -> None:
        self._untold: list[WorkerEnd] = []

    def __bool__(self) -> bool:
        """Return whether any exit is unreported."""
        return bool(self._untold)

    @property
    def wait_seconds(self) -> float:
        """Time that the zygote's loop may wait for events before it checks again."""
        return max(0.0, self._untold[0].tell_seconds - time.monotonic()) if self._untold else math.inf

    def add(self, front: socket.socket | None, worker: str, status: int | None) -> None:
        """Add the exit of a worker; `front` is None if the worker had no front."""
        self._untold.append(WorkerEnd(front, worker, status, time.monotonic() + _MOST_SECONDS))

    def take(self, *, is_anything_left: bool) -> list[WorkerEnd]:
        """Return and drop the exits to report now.

        While processes are left behind (`is_anything_left`), return only the exits that can wait no longer.
        """
        now = time.monotonic()
        count = sum(end.tell_seconds <= now for end in self._untold) if is_anything_left else len(self._untold)
        told, self._untold = self._untold[:count], self._untold[count:]
        return told


class Orphans:
    """Children of this process that it did not fork.

    When an orphan ends, its own children become children of this process. Call `end` after each turn of the loop to
    find them; the end of an orphan makes the loop turn.
    """

    def __init__(self, watch: _Watch, unwatch: Callable[[int], None]) -> None:
        self._watch = watch
        self._unwatch = unwatch
        self._dying: set[int] = set()

    def end(self, *, known: Collection[int]) -> bool:
        """Kill every child that is not in `known`; returns False if there was none to kill."""
        found = [pid for pid in children() if pid not in known]
        for pid in found:
            kill_child(pid)
            if pid not in self._dying:
                self._await(pid)
        return bool(found)

    def _await(self, pid: int) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            # There are more orphans than free descriptors: the next turn handles the rest.
            return
        self._dying.add(pid)
        self._watch(pidfd, lambda: self._reap(pid, pidfd))

    def _reap(self, pid: int, pidfd: int) -> None:
        self._unwatch(pidfd)
        os.close(pidfd)
        self._dying.discard(pid)
        os.waitpid(pid, 0)
