# SPDX-License-Identifier: Apache-2.0
"""Directories below a root, opened name by name through the descriptor of the parent, without following links.

A path is resolved and compared with the roots once. Anyone who may write below a root can later replace a directory
with a link, and resolving the path again would then lead elsewhere. So this module never resolves a path again. A
resolved path has no links below the root, so a link found there must be new and is refused. Unlike openat2, this works
on every Linux kernel, and it can create missing directories.
"""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
# A directory that is only passed through need not be readable.
_PASSED = os.O_PATH | _DIRECTORY


def opened(root: Path, directory: Path) -> int:
    """Open a root or a directory below it, to sync it or to use its entries. Returns a descriptor; raises OSError."""
    return _descend(root, directory, _open_in, os.O_RDONLY | _DIRECTORY)


def passed(root: Path, directory: Path) -> int:
    """Open a directory that may be unreadable: its entries can be used, but it cannot be synced."""
    return _descend(root, directory, _open_in, _PASSED)


def made(root: Path, directory: Path) -> int:
    """Open a directory like `passed`, after creating the root and the directories that are missing; raises OSError."""
    root.mkdir(parents=True, exist_ok=True)
    return _descend(root, directory, _make_in, _PASSED)


def _descend(root: Path, directory: Path, step: Callable[[int, str, int], int], flags: int) -> int:
    names = directory.relative_to(root).parts
    descriptor = os.open(root, _PASSED if names else flags)
    for left, name in enumerate(names, start=1 - len(names)):
        above = descriptor
        try:
            descriptor = step(above, name, _PASSED if left else flags)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            message = f"{name!r} has become a link or a file, and was a directory when the path was resolved"
            raise OSError(error.errno, message) from error
        finally:
            os.close(above)
    return descriptor


def _open_in(above: int, name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW, dir_fd=above)


def _make_in(above: int, name: str, flags: int) -> int:
    with suppress(FileNotFoundError):
        return _open_in(above, name, flags)
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=above)
    return _open_in(above, name, flags)
