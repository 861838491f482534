# SPDX-License-Identifier: Apache-2.0
"""How much memory no file stands behind in this container or on this machine: more than that nobody in it holds.

A page that a process shares with the children that it forked counts in each of them where processes are measured one by
one, and the kernel shows nobody else's sharing to an ordinary user. This sum has each page once.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_MACHINE = ("AnonPages:", "Shmem:")
_GROUP = ("anon", "shmem")
_OLD_GROUP = ("total_rss", "total_shmem")
# Where the kernel counts them.
_PAGE_TABLES = frozenset({"PageTables:", "pagetables"})


def held_bytes(root: Path = Path("/")) -> int | None:
    """Anonymous and shared memory, swapped out or not, and page tables of all processes that this one's could be.

    None: not known here.
    """
    found = [held for path, names in _files(root) if (held := _sum(path, names)) is not None]
    return min(found, default=None)


def _files(root: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    yield root / "proc/meminfo", _MACHINE
    mounts = root / "sys/fs/cgroup"
    groups: list[tuple[Path, tuple[str, ...]]] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        relative = PurePosixPath(name).relative_to("/")
        if controllers == "":
            groups.append((mounts / relative, _GROUP))
        elif "memory" in controllers.split(","):
            groups.append((mounts / "memory" / relative, _OLD_GROUP))
    for group, names in groups:
        # Outside of containers users may have groups of their own, to which a process could move and count there.
        if not os.access(group / "cgroup.procs", os.W_OK):
            yield group / "memory.stat", names


def _sum(path: Path, names: tuple[str, ...]) -> int | None:
    """Of the values of all these names, page tables and swap; None where one is missing, which could be the largest."""
    lines = [words for line in _text(path).splitlines() if (words := line.split())]
    values = {words[0]: int(words[1]) * (1024 if words[-1] == "kB" else 1) for words in lines}
    if not values.keys() >= set(names):
        return None
    held = sum(value for name, value in values.items() if name in _PAGE_TABLES.union(names))
    # Of the machine, of an old group and of a new one, which has a file for it, each where there is any.
    swapped = values.get("SwapTotal:", 0) - values.get("SwapFree:", 0) + values.get("total_swap", 0)
    return held + swapped + int(_text(path.with_name("memory.swap.current")) or 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
