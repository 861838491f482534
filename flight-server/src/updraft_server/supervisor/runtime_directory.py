# SPDX-License-Identifier: Apache-2.0
"""Directory in which a pool's processes find each other: private, and used by one pool only."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

FRONT_SOCKET = "front.sock"
# Longest path that fits the address of a Unix socket, which ends with a zero byte.
_MAX_SOCKET_PATH_BYTES = 107
_WRITABLE_FOR_OTHERS = 0o022
_GROUP_MAY_READ = 0o750


@contextlib.contextmanager
def claimed(directory: Path, halves: Iterable[str], *, group_may_read: bool = False) -> Iterator[None]:
    """Create the directory if it is missing, and lock it for these halves of a pool; raises OSError with a reason.

    With `group_may_read`, the workers' side may run as another user of the same group.
    """
    if len(os.fsencode(directory / FRONT_SOCKET)) > _MAX_SOCKET_PATH_BYTES:
        longest = _MAX_SOCKET_PATH_BYTES - len(f"/{FRONT_SOCKET}")
        raise _error(errno.ENAMETOOLONG, f"a socket needs a shorter path: at most {longest} bytes", directory)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(directory)
    if group_may_read and directory.stat().st_uid == os.geteuid():
        directory.chmod(_GROUP_MAY_READ)
    with contextlib.ExitStack() as stack:
        for half in halves:
            lock = stack.enter_context((directory / f"{half}.lock").open("w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                reason = f"the {half} of another pool uses it: give each pool a --runtime-directory of its own"
                raise _error(errno.EBUSY, reason, directory) from None
        yield


def _check_private(directory: Path) -> None:
    """Raise OSError if another user could write here or redirect a link, and so impersonate the pool's processes."""
    for status in (directory.lstat(), directory.stat()):
        if status.st_uid not in (0, os.geteuid()):
            raise _error(
                errno.EPERM, f"it belongs to the user {status.st_uid}: name a directory of your own", directory
            )
    if directory.stat().st_mode & _WRITABLE_FOR_OTHERS:
        raise _error(
            errno.EPERM, "others may write to it: name a directory below it that does not exist yet", directory
        )


def _error(number: int, reason: str, directory: Path) -> OSError:
    return OSError(number, reason, str(directory))
