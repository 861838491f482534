# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory of processes and of all that they have started, read from /proc."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

Ticks = tuple[tuple[int, int], ...]
"""Process id and processor time in clock ticks, that of ended children included, of each process of a tree."""

# Fields of /proc/PID/stat, counted behind the name, which may hold anything and ends with the last parenthesis.
_PARENT = 1
_SESSION = 3
_TIMES = slice(11, 15)
_STARTED = 19
_RESIDENT_PAGES = 21

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessTree(NamedTuple):
    """A process, its descendants, and who is left of its session."""

    ticks: Ticks
    """Equal in two measurements only if no process of the tree began, ended or used a tick in between."""
    memory_bytes: int
    """Resident memory; a page that several processes share counts in each."""


class _Stat(NamedTuple):
    parent: int
    session: int
    ticks: int
    started_ticks: int
    memory_bytes: int


def process_trees(roots: Iterable[int]) -> Mapping[int, ProcessTree]:
    """The tree of each process. Reads all of /proc: too slow for every batch."""
    stats = _read_all()
    children, sessions = defaultdict(list), defaultdict(list)
    for pid, stat in stats.items():
        children[stat.parent].append(pid)
        sessions[stat.session].append(pid)
    trees = {}
    for root in roots:
        members = sorted(_tree([root, *sessions[root]] if root in stats else sessions[root], children))
        trees[root] = ProcessTree(
            tuple((pid, stats[pid].ticks) for pid in members), sum(stats[pid].memory_bytes for pid in members)
        )
    return trees


def parents() -> Mapping[int, int]:
    """The parent of each process. Reads all of /proc."""
    return {pid: stat.parent for pid, stat in _read_all().items()}


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot: with the pid it names one process; None when there is none."""
    stat = _read(Path(f"/proc/{pid}"))
    return stat.started_ticks if stat is not None else None


def _tree(found: Iterable[int], children: Mapping[int, list[int]]) -> set[int]:
    tree = set(found)
    unseen = list(tree)
    while unseen:
        new = [child for child in children.get(unseen.pop(), ()) if child not in tree]
        tree.update(new)
        unseen.extend(new)
    return tree


def _read_all() -> dict[int, _Stat]:
    entries = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {int(entry.name): stat for entry in entries if (stat := _read(entry)) is not None}


def _read(process: Path) -> _Stat | None:
    try:
        fields = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        # It has just ended.
        return None
    return _Stat(
        parent=int(fields[_PARENT]),
        session=int(fields[_SESSION]),
        ticks=sum(map(int, fields[_TIMES])),
        started_ticks=int(fields[_STARTED]),
        memory_bytes=int(fields[_RESIDENT_PAGES]) * _PAGE_BYTES,
    )
