# SPDX-License-Identifier: Apache-2.0
"""Directory trees that user code made, in any shape: their removal, and their size on disk.

The code follows no link, uses no path longer than two names, and has one or two descriptors open at a time. So no
depth, mode or name can stop it. To remove a tree, the code moves one directory after the other up to the top level and
removes it there, which needs memory for only one directory entry. The tree may change while its size is measured.
Measuring needs memory in proportion to the number of entries.
"""

import contextlib
import fcntl
import itertools
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK keeps the call from blocking if the file is really a pipe.
_OPEN_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def move_into(trash: str, directory: str, name: str) -> None:
    """Move an entry of a directory into `trash` in one step, whatever the entry contains; raises OSError."""
    parent = os.open(directory, _OPEN_DIRECTORY)
    try:
        _open_to_owner(name, parent)
        Path(directory, name).rename(Path(trash, name))
    finally:
        os.close(parent)


def empty_directory(path: str, *, within_seconds: float) -> bool:
    """Remove everything in `path`. Return False if the time limit or an error left something behind."""
    deadline_seconds = time.monotonic() + within_seconds
    root = os.open(path, _OPEN_DIRECTORY)
    try:
        # Every pass removes the tree's first level and moves the second level up.
        while time.monotonic() < deadline_seconds:
            removed, left = _remove_level(root, deadline_seconds)
            if not removed:
                return not left
        return False
    finally:
        os.close(root)


def _remove_level(root: int, deadline_seconds: float) -> tuple[int, int]:
    """Remove or move up entries. Return two counts: entries removed or moved up one level, and entries that remain."""
    removed = left = 0
    # Names for moved directories, random so that no existing entry has the same name.
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
    """Unlink the files of a directory in `root`, and move its directories into `root`; returns how many of both."""
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
    """Let this user read and write a directory. A function may have removed these rights to protect or hide it."""
    with contextlib.suppress(OSError):
        entry = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            # Use the descriptor, because the name may refer to something else by now.
            Path(f"/proc/self/fd/{entry}").chmod(0o700)
        finally:
            os.close(entry)


# Unit of `st_blocks`, whatever the file system's own blocks are.
_BLOCK_BYTES = 512

_Identity = tuple[int, int]


class TreeSize(NamedTuple):
    """Size of a directory's contents, without the directory itself."""

    size_bytes: int = 0
    """Size on the disk. Holes do not count, and a file with several names counts once."""
    files: int = 0
    """Number of entries of all kinds."""


class _Level(NamedTuple):
    directory: _Identity
    unseen: list[str]
    """Subdirectories that are still to be visited."""


def tree_size(path: Path, *, most_files: int) -> TreeSize:
    """Return the size of a tree, or zeros if the directory does not exist. Stop counting after `most_files` entries."""
    # The walk makes this descriptor refer to one directory after the other.
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
        # If another process has moved the directory in the meantime, it has another parent. Then stop this walk; the
        # next measurement counts from the start.
        if not levels or not _enter(current, "..") or _identity(current) != levels[-1].directory:
            break
    return TreeSize(size_bytes, files)


def _enter(current: int, name: str) -> bool:
    """Make the descriptor `current` refer to the entry `name` of its directory. Return False if that is impossible."""
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


def _identity(directory: int) -> _Identity:
    found = os.fstat(directory)
    return found.st_dev, found.st_ino


def remove_unused_files(directory: Path, *, within_seconds: float) -> bool:
    """Remove unused plain files from a /dev/shm that all workers of a pool share. Return False if the time ran out.

    The kernel does not record which process made a file. A file counts as unused if no process has it mapped or open
    for writing, because processes that share memory have its file mapped. So a file stays while a worker of registered
    functions, or a process that a function module has started, uses it.
    """
    deadline_seconds = time.monotonic() + within_seconds
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if time.monotonic() > deadline_seconds:
                return False
            with contextlib.suppress(OSError):
                if stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                    _remove_unused(entry.path)
    return True


def _remove_unused(path: str) -> None:
    """Remove a file; raises OSError if a process has it open for writing, or mapped as shared memory."""
    try:
        file = os.open(path, _OPEN_FILE | os.O_NOFOLLOW)
    except PermissionError:
        file = _opened_to_owner(path)
    try:
        # The kernel grants a read lease only if no process has the file open for writing. While the lease is held, the
        # kernel keeps new writers out.
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        Path(path).unlink()
    finally:
        os.close(file)


def _opened_to_owner(path: str) -> int:
    """Open a file that this user owns but may not read. A function may have removed this right to keep the file."""
    entry = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(entry).st_mode):
            raise PermissionError(f"{path} is not a plain file")
        # Use the descriptor, because the name may refer to something else by now.
        name = f"/proc/self/fd/{entry}"
        Path(name).chmod(0o600)
        return os.open(name, _OPEN_FILE)
    finally:
        os.close(entry)
