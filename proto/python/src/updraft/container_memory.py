# SPDX-License-Identifier: Apache-2.0
"""Memory limits of this process, from its control groups and the machine; the smallest limit applies."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

# cgroup v1 shows "no limit" as a number close to the largest possible number.
_V1_UNLIMITED_BYTES = 1 << 60


def memory_limits(root: Path = Path("/")) -> dict[str, int]:
    """Return every memory limit of this process, in bytes, by source; never empty."""
    limits = {"machine": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")}
    for source, path in _limit_files(root):
        value = _limit(path)
        if value is not None:
            limits[source] = value
    return limits


def resident_bytes() -> int:
    """Return the resident memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _limit_files(root: Path) -> Iterator[tuple[str, Path]]:
    mounts = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            # In cgroup v2 the limits of all ancestors apply; the root group has no limit file.
            for ancestor in (PurePosixPath(group), *PurePosixPath(group).parents):
                yield f"cgroup {ancestor}", mounts / ancestor.relative_to("/") / "memory.max"
        elif "memory" in controllers.split(","):
            relative = PurePosixPath(group).relative_to("/")
            yield f"cgroup v1 {group}", mounts / "memory" / relative / "memory.limit_in_bytes"
            # In a container that sees only its own control group, that group appears as the root.
            yield "cgroup v1 /", mounts / "memory/memory.limit_in_bytes"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _limit(path: Path) -> int | None:
    text = next(iter(_lines(path)), "")
    return int(text) if text.isdigit() and int(text) < _V1_UNLIMITED_BYTES else None
