# SPDX-License-Identifier: Apache-2.0
"""Order in which the kernel kills processes when memory runs out: forks of this process before the process itself.

This module also measures the memory of the container or machine that is not backed by files. The measurement is an
upper bound for all processes there together, and counts each page once. If processes are measured one by one, a page
that a process shares with its forked children counts in each of them, and the kernel does not show ordinary users which
pages are shared.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_FORKS_ABOVE = 500
_MOST = 1000


def die_first() -> None:
    """Make the kernel kill this process before its parent when memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_FORKS_ABOVE))


class OutOfMemoryScore:
    """Open descriptor of this process's oom_score_adj.

    After a process has hidden its memory, an ordinary user cannot open this file any more. A forked child starts with
    the score of its parent, and cannot open its own file either.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._own = 0
        # Some kernels and container runtimes do not have this file.
        with contextlib.suppress(OSError, ValueError):
            self._descriptor = os.open("/proc/self/oom_score_adj", os.O_RDWR)
            self._own = int(os.read(self._descriptor, 16))

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Raise the score of processes forked in the block, so that the kernel kills them before this process.

        A forked child may leave the block too. It keeps the raised score.
        """
        self._write(min(self._own + _FORKS_ABOVE, _MOST))
        try:
            yield
        finally:
            # Even in a forked child, this writes to the parent's file, because the descriptor refers to that file.
            self._write(self._own)

    def _write(self, score: int) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self._descriptor, b"%d" % score, 0)


_MACHINE = ("AnonPages:", "Shmem:")
_GROUP = ("anon", "shmem")
_OLD_GROUP = ("total_rss", "total_shmem")
# Page tables, on kernels that count them.
_PAGE_TABLES = frozenset({"PageTables:", "pagetables"})


def held_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes of anonymous and shared memory, swapped out or not, and of page tables; None if unknown.

    Returns the sum of the machine or the sum of a cgroup that this user's processes cannot leave, whichever is less.
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
        # Outside of containers, users may have their own cgroups. A process could escape this count by moving to
        # another cgroup.
        if not os.access(group / "cgroup.procs", os.W_OK):
            yield group / "memory.stat", names


def _sum(path: Path, names: tuple[str, ...]) -> int | None:
    """Return the sum of the values with these names, of page tables and of swap.

    If a name is missing, return None, because its value could be the largest one.
    """
    lines = [words for line in _text(path).splitlines() if (words := line.split())]
    values = {words[0]: int(words[1]) * (1024 if words[-1] == "kB" else 1) for words in lines}
    if not values.keys() >= set(names):
        return None
    held = sum(value for name, value in values.items() if name in _PAGE_TABLES.union(names))
    # Add the swap of the machine or of the cgroup. In version 2 of cgroups, swap has a separate file.
    swapped = values.get("SwapTotal:", 0) - values.get("SwapFree:", 0) + values.get("total_swap", 0)
    return held + swapped + int(_text(path.with_name("memory.swap.current")) or 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
