# SPDX-License-Identifier: Apache-2.0
"""Workers of a zygote: held workers, worker exits not yet reported to a front, and orphans that workers leave behind.

When the zygote reports a worker's exit, the front gives the worker's place to another exchange. That exchange must not
run next to processes that the ended worker has started. So the zygote ends these processes before it reports the exit.
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
from updraft_server.linux.process_trees import ProcessTree, is_stopped, own_bytes, process_trees
from updraft_server.zygote.scratch import ScratchDirectories

_Watch = Callable[[int, Callable[[], None]], None]
# A living front claims its workers at once. A worker that is still unclaimed after this time has lost its front.
_CLAIM_SECONDS = 10.0
# Killed processes normally end within milliseconds. Processes that keep forking or that wait for a disk may delay the
# report of a worker's exit, but at most for this time.
_MOST_SECONDS = 0.5
# A function can make the kernel continue its stopped worker, so the zygote checks stopped workers this often.
_LOOK_SECONDS = 1.0
# Time until the zygote checks again, after it found a worker running that should be stopped. If the front has continued
# the worker, the front's packet has arrived by then (`updraft_server.pool.workers`).
_SECOND_LOOK_SECONDS = 0.2


@dataclass(eq=False, slots=True)
class HeldWorker:
    """One worker process, until the zygote has reaped it."""

    id: str
    pid: int
    pidfd: int
    front: socket.socket | None
    """Front that the worker belongs to; None until a front claims it."""
    is_child: bool
    """Whether this zygote forked and reaps the worker; False for a worker of an earlier zygote."""
    stopped_seconds: float = math.inf
    """Monotonic time at which the worker was stopped; infinite while the worker may run."""
    was_running: bool = False
    """Whether the last check found the stopped worker running."""
    shared_memory: int | None = None
    """Descriptor of the worker's own /dev/shm; None if it has none, or if an earlier zygote forked the worker."""

    def kill(self) -> None:
        """Send SIGKILL. When reaping the worker, the zygote also ends processes that the worker has started."""
        self.signal(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the worker until `go_on`."""
        self.stopped_seconds, self.was_running = time.monotonic(), False
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue the worker."""
        self.stopped_seconds, self.was_running = math.inf, False
        self.signal(signal.SIGCONT)

    def signal(self, number: int) -> None:
        """Send a signal to the worker. Do nothing if it has ended."""
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
    """Return the usage of a worker or model process, including all processes that it has started.

    Args:
        tree: The process and its descendants, as just measured.
        shared_memory: Descriptor of the process's own /dev/shm; None if it has none.
        image_bytes: Memory that every forked process starts with.
        scratch: Size of the process's scratch directory.
        container_bytes: Memory that the whole container holds; None if unknown.
        scratch_room_bytes: Free bytes on the volume of the scratch directory; None if unknown.
    """
    # Use a hash, because fronts only compare two measurements and need not see process ids.
    mark = hashlib.blake2b(repr(tree.ticks).encode(), digest_size=8).hexdigest()
    shared_files_bytes = 0 if shared_memory is None else memory_used_bytes(shared_memory)
    # The tree's own bytes already include mapped files in /dev/shm, so add only files that are not mapped.
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
    """Workers that a zygote has forked, and workers that it has taken over from an earlier zygote."""

    def __init__(
        self,
        records: WorkerRecords,
        scratch: ScratchDirectories,
        watch: _Watch,
        unwatch: Callable[[int], None],
        on_burial: Callable[[str], None],
    ) -> None:
        """Start without workers.

        Args:
            records: Records the workers for the next zygote.
            scratch: Manages the workers' scratch directories.
            watch: Makes the zygote's loop call a function when a pidfd can be read.
            unwatch: Undoes `watch`; idempotent.
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
        self._next_look_seconds = 0.0
        # Memory that every worker starts with. A worker shares each page with the zygote until it writes to the page.
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
        """Hold and record a worker that has just been forked. If it cannot be recorded, kill it and raise OSError."""
        self._hold(worker)
        try:
            self._records.add(worker.id, worker.pid)
        except OSError:
            worker.kill()
            raise

    def take_over(self) -> None:
        """Take over the workers of a dead zygote, and remove the scratch directories of all other workers."""
        self._adopt()
        self._scratch.discard_all_but(self._held)

    def claim(self, front: socket.socket, names: Sequence[str], *, is_successor: bool) -> Sequence[str]:
        """Assign these workers to the front, unless they belong to a front. Return the ids of workers that are gone."""
        if is_successor and not self._held.keys() >= set(names):
            # The predecessor retired before the front connected to this zygote. A retired zygote forks no more workers,
            # so adopt all workers that the predecessor left behind.
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
        """Leave the workers to the next zygote, but keep track of workers that this zygote has forked, to reap them."""
        self._claims_end_seconds = math.inf
        for worker in list(self._held.values()):
            # Continue stopped workers. A worker that stays stopped would not notice if its front died before claiming
            # it.
            worker.go_on()
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

    def stop_again(self) -> Sequence[HeldWorker]:
        """Stop and return the workers that were found running although their front has stopped them.

        The zygote checks once a second. If a check finds a stopped worker running, a second check follows soon. The
        second check stops the worker, unless a packet of the front has continued the worker in the meantime.
        """
        now = time.monotonic()
        if now < self._next_look_seconds:
            return ()
        self._next_look_seconds = now + _LOOK_SECONDS
        # Leave out workers that were stopped only recently, because a worker may need a moment to stop.
        stopped = [worker for worker in self._held.values() if worker.stopped_seconds < now - _LOOK_SECONDS]
        again = [worker for worker in stopped if worker.was_running]
        for worker in again:
            worker.stop()
        for worker in stopped:
            worker.was_running = worker not in again and not is_stopped(worker.pid)
        if any(worker.was_running for worker in stopped):
            self._next_look_seconds = now + _SECOND_LOOK_SECONDS
        return again

    @property
    def wait_seconds(self) -> float:
        """Time until `stop_again` checks again."""
        return max(0.0, self._next_look_seconds - time.monotonic())

    def measured(self, front: socket.socket, names: Sequence[str]) -> Mapping[str, WorkerUsage]:
        """Return the usage of the named workers that belong to this front."""
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
        """Reap and forget a worker that has ended or is being killed. Return its exit status; None if unknown."""
        self._forget(worker)
        if worker.shared_memory is not None:
            os.close(worker.shared_memory)
        status = reap(worker.pid) if worker.is_child else None
        self._on_burial(worker.id)
        self._records.forget(worker.id)
        self._scratch.discard(worker.id)
        return status

    def _forget(self, worker: HeldWorker) -> None:
        """Stop tracking a worker. If it is alive, it keeps running."""
        del self._held[worker.id]
        self._unwatch(worker.pidfd)
        os.close(worker.pidfd)


class WorkerEnd(NamedTuple):
    """Worker exit to report."""

    front: socket.socket | None
    """Front to report to; None if the worker had no front."""
    worker: str
    status: int | None
    """Exit code, or the negative number of the signal that ended the worker; None if unknown."""
    tell_seconds: float
    """Monotonic time at which the zygote reports the exit even if processes are left behind."""


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
        """Return the exits to report now, and drop them.

        While processes are left behind (`is_anything_left`), return only the exits that cannot wait any longer.
        """
        now = time.monotonic()
        count = sum(end.tell_seconds <= now for end in self._untold) if is_anything_left else len(self._untold)
        told, self._untold = self._untold[:count], self._untold[count:]
        return told


class Orphans:
    """Children that this process did not fork.

    When an orphan ends, the orphan's children become children of this process. The end of an orphan causes another turn
    of the loop. Call `end` after each turn to find new orphans.
    """

    def __init__(self, watch: _Watch, unwatch: Callable[[int], None]) -> None:
        self._watch = watch
        self._unwatch = unwatch
        self._dying: set[int] = set()

    def end(self, *, known: Collection[int]) -> bool:
        """Kill every child that is not in `known`. Return False if there was no such child."""
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
            # There are more orphans than free descriptors. Later turns handle the rest.
            return
        self._dying.add(pid)
        self._watch(pidfd, lambda: self._reap(pid, pidfd))

    def _reap(self, pid: int, pidfd: int) -> None:
        self._unwatch(pidfd)
        os.close(pidfd)
        self._dying.discard(pid)
        os.waitpid(pid, 0)
