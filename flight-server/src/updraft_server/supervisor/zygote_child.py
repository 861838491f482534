# SPDX-License-Identifier: Apache-2.0
"""Zygote as the supervisor's child: its start with an environment and a lifeline, and the limits of what it loads."""

import functools
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from updraft.container_memory import memory_limits
from updraft.service.child import Child
from updraft.service.heartbeat import INTERVAL_SECONDS
from updraft_server.ipc import zygote_packets as packets
from updraft_server.ipc.load import NOTE_VARIABLE, Load, LoadingNote
from updraft_server.linux.process_trees import process_trees
from updraft_server.linux.resource_limits import allow_more_than

# Variables that a zygote and its workers inherit. Variables that could hold a secret are left out.
_KEPT_VARIABLES = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
)
_WORKER_VARIABLES = {
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    # Otherwise importing pyarrow starts a thread, which would be missing in forked processes.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
# One thread by default, because one exchange is meant to use one core, and because a library that starts threads when
# it is imported would break the zygote.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

# Share of all memory that a zygote may use while it loads. If a zygote used all memory, the kernel might kill the whole
# container.
_MOST_MEMORY = 0.9
# Maximum number of loads whose memory is remembered. If a zygote exceeds its share of memory, the load that used the
# most memory is left out.
_MOST_LOADS = 100
_FIRST_WORD_TURNS = 10
_TURNS_BETWEEN_WORDS = 60


class Excess(NamedTuple):
    """Load that has to be left out because a limit was exceeded."""

    load: Load
    reason: str


class LoadWatch:
    """Watch over the time and memory of a zygote's load, checked every `heartbeat.INTERVAL_SECONDS`.

    The watch counts its checks and reads no clock. So time in which the supervisor was stopped is not counted.
    """

    def __init__(self, note: LoadingNote, memory_bytes: Callable[[], int], all_bytes: int) -> None:
        """Create a watch before its first check.

        Args:
            note: Note in which the zygote records its load.
            memory_bytes: Returns the memory that the zygote and its descendants use now.
            all_bytes: Memory of the container or machine.
        """
        self._note = note
        self._memory_bytes = memory_bytes
        self._all_bytes = all_bytes
        self.load: Load | None = None
        """Load at the last check; None if no author's code was running."""
        self.excess: Excess | None = None
        """Why the zygote has to end, according to the last check; None if the zygote may continue."""
        self._turns = 0
        self._held_bytes = 0
        self._grown_bytes: dict[Load, int] = {}
        """Growth of the memory during each load, for at most `_MOST_LOADS` loads."""

    def look(self) -> None:
        """Check the load, its time and its memory once more."""
        before, self.load = self.load, self._note.read()
        self._turns = self._turns + 1 if self.load is not None and self.load == before else 0
        self.excess = None if self.load is None else self._late(self.load) or self._too_large(self.load)

    @property
    def patience(self) -> str:
        """Message for an operator who waits for a slow load; empty after most checks."""
        if self.load is None or self._turns % _TURNS_BETWEEN_WORDS != _FIRST_WORD_TURNS:
            return ""
        limit = f"the limit is {self.load.limit_seconds:g}" if self.load.limit_seconds else "there is no limit"
        return f"{self.load} has been loading for {self._turns * INTERVAL_SECONDS:g} seconds, {limit}"

    def _late(self, load: Load) -> Excess | None:
        is_late = 0 < load.limit_seconds <= self._turns * INTERVAL_SECONDS
        return Excess(load, load.lateness) if is_late else None

    def _too_large(self, load: Load) -> Excess | None:
        before_bytes, self._held_bytes = self._held_bytes, self._memory_bytes()
        self._grown_bytes[load] = self._grown_bytes.get(load, 0) + self._held_bytes - before_bytes
        if len(self._grown_bytes) > _MOST_LOADS:
            others = (each for each in self._grown_bytes if each != load)
            del self._grown_bytes[min(others, key=lambda each: self._grown_bytes[each])]
        most_bytes = int(_MOST_MEMORY * self._all_bytes)
        if self._held_bytes <= most_bytes:
            return None
        largest = max(self._grown_bytes, key=lambda each: self._grown_bytes[each])
        return Excess(
            largest,
            f"it took {self._grown_bytes[largest]} bytes of memory, and everything loaded took more than {most_bytes} "
            f"together, {_MOST_MEMORY:.0%} of all memory: it leaks, or the pool needs more memory",
        )


class ZygoteChild(Child):
    """Zygote process. While it loads code, it names the current load in its note. Later it sends heartbeats."""

    def __init__(self, environment: Mapping[str, str], inherited_descriptors: Sequence[int]) -> None:
        self._note = LoadingNote.made()
        all_bytes = min(memory_limits().values())
        self.watch = LoadWatch(self._note, lambda: process_trees([self.pid])[self.pid].own_bytes, all_bytes)
        descriptor = self._note.descriptor
        super().__init__(
            "updraft_server.zygote.process",
            {**environment, NOTE_VARIABLE: str(descriptor)},
            [*inherited_descriptors, descriptor],
        )

    @property
    def faults(self) -> Mapping[str, str]:
        """Faults by the names of modules and functions; valid once the zygote has started, until it ends."""
        return self._note.read_faults()

    def is_stuck(self) -> bool:
        """Return whether the zygote is stuck; while it runs an author's code, only the limits of that load apply."""
        self.watch.look()
        return super().is_stuck() if self.watch.load is None else self.watch.excess is not None

    def reaped(self, code: int) -> None:
        """Record that the zygote has ended, and during which load."""
        super().reaped(code)
        self.watch.look()
        self._note.close()


def start_zygote(settings: packets.ZygoteSettings, zygote_socket: socket.socket) -> ZygoteChild:
    """Start a zygote that serves the fronts whose connections it receives over `zygote_socket`."""
    allow_more_than(settings.worker.worker_descriptors)
    environment = zygote_environment(os.environ)
    environment[packets.ZYGOTE_SETTINGS_VARIABLE] = settings.encode()
    environment[packets.SUPERVISOR_VARIABLE] = str(zygote_socket.fileno())
    lifeline = _lifeline(settings.workers_directory)
    environment[packets.LIFELINE_VARIABLE] = str(lifeline)
    return ZygoteChild(environment, [zygote_socket.fileno(), lifeline])


@functools.cache
def _lifeline(directory: str) -> int:
    """Return the read end of a pipe whose write end closes when this process ends. All workers then end.

    Workers watch this pipe instead of their parent, because they must outlive the zygote. Any byte in the pipe would
    end all workers at once, so no worker may open the pipe for writing. An unnamed pipe could be opened for writing
    through its read end in /proc/self/fd, despite Landlock. The pipe is therefore made in a directory that is hidden
    from workers, and Landlock refuses to open it.
    """
    path = Path(directory, "lifeline")
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
    try:
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        _held_open = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    finally:
        path.unlink()
    return reading


def zygote_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a zygote and its workers."""
    kept = {name: inherited[name] for name in _KEPT_VARIABLES if name in inherited}
    threads = {name: inherited.get(name, "1") for name in _THREAD_VARIABLES}
    return kept | threads | _WORKER_VARIABLES
