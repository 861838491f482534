# SPDX-License-Identifier: Apache-2.0
"""CPU time, memory, threads and number of processes, read from /proc. Values of a process include its descendants."""

import contextlib
import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

Ticks = tuple[tuple[int, int], ...]
"""Process id and CPU time, in clock ticks, of each process of a tree; the time includes ended children."""

# Fields of /proc/PID/stat, counted from the one after the name. The name may hold any character, and ends with the last
# parenthesis of the line.
_STATE = 0
_PARENT = 1
_TIMES = slice(11, 15)
_THREADS = 17
_STARTED = 19
_RESIDENT_PAGES = 21
# A process whose first thread has ended is a zombie, whatever its other threads do.
_NOT_RUNNING = "TtZX"

# Fields of /proc/PID/status. Unlike smaps, this file stays readable if a process hides its memory.
_COUNTED = "RssAnon:", "RssShmem:", "VmPTE:", "VmSwap:"

# The kernel lists children by thread. For a process with more threads than this, reading all of /proc once is cheaper.
_MOST_THREADS = 64

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ProcessTree(NamedTuple):
    """Process and its descendants; empty once it has ended."""

    ticks: Ticks
    """Equal in two measurements only if no process of the tree began, ended or used a tick in between."""
    memory_bytes: int
    """Resident memory; a page that several processes share counts in each."""
    own_bytes: int
    """Memory that is not backed by files: anonymous and shared memory, swapped out or not, and all page tables."""
    shared_bytes: int = 0
    """Shared memory alone, including mapped files in memory."""
    threads: int = 0
    """Threads of all its processes together."""

    @property
    def processor_seconds(self) -> float:
        """CPU time of all its processes."""
        return sum(ticks for _, ticks in self.ticks) / _TICKS_PER_SECOND


class _Stat(NamedTuple):
    parent: int
    ticks: int
    started_ticks: int
    memory_bytes: int
    threads: int


def process_trees(roots: Iterable[int]) -> Mapping[int, ProcessTree]:
    """Return the tree of each process. Reads /proc only for processes in the trees; on old kernels, for all."""
    children = _Children()
    return {root: _tree(root, children) for root in roots}


def own_bytes(process: Path = Path("/proc/self")) -> int:
    """Return anonymous and shared memory of a process, swapped out or not, and its page tables; 0 if it has ended."""
    return sum(_private_and_shared(process))


def parents() -> Mapping[int, int]:
    """Return the parent of each process. Reads all of /proc."""
    return {pid: stat.parent for pid, stat in _read_all().items()}


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if the process has ended.

    The process id and this time together identify a process.
    """
    stat = _read(Path(f"/proc/{pid}"))
    return stat.started_ticks if stat is not None else None


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped or has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[_STATE] in _NOT_RUNNING
    except OSError:
        return True


def _tree(root: int, children: "_Children") -> ProcessTree:
    found: dict[int, _Stat] = {}
    unseen = [root]
    while unseen:
        pid = unseen.pop()
        if pid not in found and (stat := _read(Path(f"/proc/{pid}"))) is not None:
            found[pid] = stat
            unseen.extend(children.of(pid, stat.threads))
    memory = [_private_and_shared(Path(f"/proc/{pid}")) for pid in found]
    return ProcessTree(
        tuple((pid, found[pid].ticks) for pid in sorted(found)),
        memory_bytes=sum(stat.memory_bytes for stat in found.values()),
        own_bytes=sum(map(sum, memory)),
        shared_bytes=sum(shared for _, shared in memory),
        threads=sum(stat.threads for stat in found.values()),
    )


def _private_and_shared(process: Path) -> tuple[int, int]:
    """Return private and shared memory in bytes; zero for a process that has ended.

    Page tables and swapped-out memory count as private. Otherwise a process could use memory uncounted: reading memory
    that was never written allocates only page tables, and a process can swap out its own memory (MADV_PAGEOUT).
    """
    found = _memory_of(process)
    if not found:
        # The first thread may have ended while other threads run. The files of the other threads still show the memory.
        with contextlib.suppress(OSError):
            found = next(filter(None, map(_memory_of, (process / "task").iterdir())), found)
    anonymous, shared, tables, swapped = (int(found.get(name, 0)) * 1024 for name in _COUNTED)
    return anonymous + tables + swapped, shared


def _memory_of(task: Path) -> Mapping[str, str]:
    """Return the memory fields of a process's or thread's status, in KiB; empty if it has ended."""
    try:
        lines = (task / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return dict(line.split(maxsplit=2)[:2] for line in lines if line.startswith(_COUNTED))


class _Children:
    """Children of processes, for one measurement."""

    def __init__(self) -> None:
        self._of_all: Mapping[int, Iterable[int]] | None = None

    def of(self, pid: int, threads: int) -> Iterable[int]:
        if self._of_all is None and threads <= _MOST_THREADS and _lists_children():
            return _children(pid)
        if self._of_all is None:
            self._of_all = _children_of_all()
        return self._of_all.get(pid, ())


@functools.cache
def _lists_children() -> bool:
    return Path(f"/proc/self/task/{os.getpid()}/children").exists()


def _children(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    found: list[int] = []
    # The process, or one of its threads, may have ended.
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found.extend(map(int, (thread / "children").read_text().split()))
    return found


def _children_of_all() -> Mapping[int, Iterable[int]]:
    known: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        known.setdefault(parent, []).append(pid)
    return known


def _read_all() -> dict[int, _Stat]:
    entries = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {int(entry.name): stat for entry in entries if (stat := _read(entry)) is not None}


def _read(process: Path) -> _Stat | None:
    try:
        fields = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        # The process has just ended.
        return None
    return _Stat(
        parent=int(fields[_PARENT]),
        ticks=sum(map(int, fields[_TIMES])),
        started_ticks=int(fields[_STARTED]),
        memory_bytes=int(fields[_RESIDENT_PAGES]) * _PAGE_BYTES,
        threads=int(fields[_THREADS]),
    )
