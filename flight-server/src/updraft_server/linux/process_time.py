# SPDX-License-Identifier: Apache-2.0
"""CPU time of workers and of all processes that they have started, read from /proc."""

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


class _Stat(NamedTuple):
    parent: int
    session: int
    ticks: int


def processor_ticks(worker_pids: Iterable[int]) -> Mapping[int, Ticks]:
    """The ticks of each worker's tree: of itself, its descendants, and who is left of its session.

    If two answers for a worker are equal, no process of its tree began, ended or used a tick in between. Reads all of
    /proc: too slow for every batch or an event loop.
    """
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _read(entry)) is not None:
            stats[int(entry.name)] = stat
    return {pid: tuple(sorted((member, stats[member].ticks) for member in _tree(pid, stats))) for pid in worker_pids}


def _tree(root: int, stats: Mapping[int, _Stat]) -> set[int]:
    children = defaultdict(list)
    for pid, stat in stats.items():
        children[stat.parent].append(pid)
    tree = {pid for pid, stat in stats.items() if root in (pid, stat.session)}
    unseen = list(tree)
    while unseen:
        new = [child for child in children[unseen.pop()] if child not in tree]
        tree.update(new)
        unseen.extend(new)
    return tree


def _read(process: Path) -> _Stat | None:
    try:
        fields = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        # It has just ended.
        return None
    return _Stat(int(fields[_PARENT]), int(fields[_SESSION]), sum(map(int, fields[_TIMES])))
