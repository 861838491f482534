# SPDX-License-Identifier: Apache-2.0
"""Size on disk of a directory tree that hostile code may change meanwhile.

No link is followed, two descriptors are open at a time, and no path is longer than one name, so that neither depth nor
names can stop the walk. Its memory use is bounded by the number of entries that it looks at.
"""

import contextlib
import os
import stat
from pathlib import Path
from typing import NamedTuple

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_BY_NAME = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Unit of `st_blocks`, whatever the file system's own blocks are.
_BLOCK_BYTES = 512

_Identity = tuple[int, int]


class TreeSize(NamedTuple):
    """Size of a directory's contents, without the directory itself."""

    size_bytes: int = 0
    """Size on the disk: holes count nothing, and a file with several names counts once."""
    files: int = 0
    """Number of entries of all kinds."""


class _Level(NamedTuple):
    directory: _Identity
    unseen: list[str]
    """Subdirectories that are still to be visited."""


def tree_size(path: Path, *, most_files: int) -> TreeSize:
    """Return the size of a tree; stops beyond `most_files` entries, and returns zeros if there is no such directory."""
    # This descriptor refers to one directory after the other.
    current = os.open(path.parent, _OPEN_DIRECTORY)
    try:
        return _walked(current, most_files) if _enter(current, path.name) else TreeSize()
    finally:
        os.close(current)


def _walked(current: int, most_files: int) -> TreeSize:
    size_bytes = files = 0
    linked: set[_Identity] = set()
    levels: list[_Level] = []

    def look() -> None:
        nonlocal size_bytes, files
        unseen: list[str] = []
        with os.scandir(current) as entries:
            for entry in entries:
                files += 1
                if files > most_files:
                    break
                with contextlib.suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode):
                        unseen.append(entry.name)
                    elif found.st_nlink > 1:
                        if (found.st_dev, found.st_ino) in linked:
                            continue
                        linked.add((found.st_dev, found.st_ino))
                    size_bytes += found.st_blocks * _BLOCK_BYTES
        levels.append(_Level(_identity(current), unseen))

    look()
    while files <= most_files:
        if levels[-1].unseen:
            if _enter(current, levels[-1].unseen.pop()):
                look()
            continue
        levels.pop()
        # A directory that was moved away meanwhile has another parent: this walk stops there, and the next one counts
        # anew.
        if not levels or not _enter(current, "..") or _identity(current) != levels[-1].directory:
            break
    return TreeSize(size_bytes, files)


def _enter(current: int, name: str) -> bool:
    """Make the descriptor refer to a directory in its current one; returns False if that is impossible."""
    try:
        try:
            inner = os.open(name, _OPEN_DIRECTORY, dir_fd=current)
        except PermissionError:
            _open_to_owner(name, current)
            inner = os.open(name, _OPEN_DIRECTORY, dir_fd=current)
    except OSError:
        return False
    os.dup2(inner, current, inheritable=False)
    os.close(inner)
    return True


def _open_to_owner(name: str, parent: int) -> None:
    """Restore this user's access to a directory, so that a function cannot hide files by removing it."""
    entry = os.open(name, _OPEN_BY_NAME, dir_fd=parent)
    try:
        # Use the descriptor, because the name could refer to something else by now.
        Path(f"/proc/self/fd/{entry}").chmod(0o700)
    finally:
        os.close(entry)


def _identity(directory: int) -> _Identity:
    found = os.fstat(directory)
    return found.st_dev, found.st_ino
