# SPDX-License-Identifier: Apache-2.0
"""Directories below a root, opened name by name, each in the descriptor of the one above: no link is followed.

A path is resolved and compared with the roots once. Whoever may write below a root can replace a directory by a link
afterwards, and a path that is resolved again would then lead elsewhere. Here no name is resolved twice, and links below
the root are gone from a resolved path, so one that is met is refused. It takes nothing from the kernel that Linux has
not always had, unlike openat2, which cannot make the missing directories either.
"""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
# A directory that is only passed need not be readable.
_PASSED = os.O_PATH | _DIRECTORY


def opened(root: Path, directory: Path) -> int:
    """A descriptor of a root or a directory below it, to sync it or use its names; raises OSError."""
    return _descend(root, directory, _open_in, os.O_RDONLY | _DIRECTORY)


def passed(root: Path, directory: Path) -> int:
    """The same for a directory that may be unreadable: its names can be used, but it cannot be synced."""
    return _descend(root, directory, _open_in, _PASSED)


def made(root: Path, directory: Path) -> int:
    """The same as `passed`, after creating what is missing of the root and below it; raises OSError."""
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
