# SPDX-License-Identifier: Apache-2.0
"""Removal of what user code has left in directories, whatever its shape.

No link is followed, no path is longer than two names, and one or two descriptors are open at a time. Directories are
moved up one after the other and removed there, so that neither depth nor modes nor names can stop the removal. It needs
the memory of one directory entry.
"""

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def move_into(trash: str, directory: str, name: str) -> None:
    """Move an entry of a directory out of the way in one step, whatever it contains; raises OSError."""
    parent = os.open(directory, _OPEN_DIRECTORY)
    try:
        _open_to_owner(name, parent)
        Path(directory, name).rename(Path(trash, name))
    finally:
        os.close(parent)


def empty_directory(path: str, *, within_seconds: float) -> bool:
    """Remove everything in `path`; returns False if something is left because of the time limit or an error."""
    deadline_seconds = time.monotonic() + within_seconds
    root = os.open(path, _OPEN_DIRECTORY)
    try:
        # Every pass removes the tree's first level and moves the second one up.
        while time.monotonic() < deadline_seconds:
            removed, left = _remove_level(root, deadline_seconds)
            if not removed:
                return not left
        return False
    finally:
        os.close(root)


def _remove_level(root: int, deadline_seconds: float) -> tuple[int, int]:
    """Return how many entries were removed or moved up, and how many are left."""
    removed = left = 0
    # Names that no existing entry has.
    names = map(f"{os.urandom(8).hex()}-{{}}".format, itertools.count())
    with os.scandir(root) as entries:
        for entry in entries:
            if time.monotonic() > deadline_seconds:
                return removed, left + 1
            try:
                if entry.is_dir(follow_symlinks=False):
                    removed += _raise_children(root, entry.name, names, deadline_seconds)
                    os.rmdir(entry.name, dir_fd=root)
                else:
                    os.unlink(entry.name, dir_fd=root)
                removed += 1
            except OSError:
                left += 1
    return removed, left


def _raise_children(root: int, name: str, names: Iterator[str], deadline_seconds: float) -> int:
    """Unlink the files of a directory in `root`, and move its directories into `root`; returns the number of both."""
    _open_to_owner(name, root)
    parent = os.open(name, _OPEN_DIRECTORY, dir_fd=root)
    moved = 0
    try:
        with os.scandir(parent) as entries:
            for entry in entries:
                if time.monotonic() > deadline_seconds:
                    break
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        _open_to_owner(entry.name, parent)
                        os.rename(entry.name, next(names), src_dir_fd=parent, dst_dir_fd=root)
                    else:
                        os.unlink(entry.name, dir_fd=parent)
                    moved += 1
    finally:
        os.close(parent)
    return moved


def _open_to_owner(name: str, parent: int) -> None:
    """Let this user read and write a directory; only then can it be emptied or moved."""
    with contextlib.suppress(OSError):
        entry = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            # Use the descriptor, because the name could refer to something else by now.
            Path(f"/proc/self/fd/{entry}").chmod(0o700)
        finally:
            os.close(entry)
