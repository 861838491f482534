# SPDX-License-Identifier: Apache-2.0
"""Replacement for `mmap.mmap` that can share memory in workers, whose filter refuses shared memory without a file.

The filter refuses this memory because the memory may stay allocated after a process unmaps it, and is then counted for
no process. An unnamed file in /dev/shm serves a function and the children that it forks just as well, and its memory is
counted. Other programs, including children of multiprocessing's `spawn`, use Python's own class, which fails in workers
unless its caller passes MAP_PRIVATE.
"""

import contextlib
import enum
import errno
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from updraft_server.sandbox_layers import SHARED_MEMORY_PATH

# NVIDIA's driver library may share host memory without a file. On machines with this driver, workers may share memory
# without a file, because a usable GPU is more important than a strict memory limit.
_DRIVER_THAT_NEEDS_THEM = Path("/dev/nvidiactl")


class _Keeping(enum.Enum):
    """Place where shared memory without a file is kept."""

    BY_THE_KERNEL = enum.auto()
    IN_FILES = enum.auto()
    PRIVATELY = enum.auto()
    """In private memory, for a process that starts no other process with which it could share memory."""


class SharedMapping(mmap.mmap):
    """Class `mmap.mmap`, except that in a worker `keeping` decides where shared memory without a file is kept."""

    __slots__ = ()

    keeping = _Keeping.BY_THE_KERNEL

    def __new__(
        cls,
        fileno: int,
        length: int,
        flags: int = mmap.MAP_SHARED,
        prot: int = mmap.PROT_READ | mmap.PROT_WRITE,
        access: int = mmap.ACCESS_DEFAULT,
        offset: int = 0,
        **newer: Any,
    ) -> "SharedMapping":
        """Create a mapping with the arguments of `mmap.mmap`; raises OSError if no directory has enough room."""
        is_shared = flags & mmap.MAP_SHARED and access != mmap.ACCESS_COPY
        if fileno != -1 or not is_shared or length <= 0 or SharedMapping.keeping is _Keeping.BY_THE_KERNEL:
            return super().__new__(cls, fileno, length, flags, prot, access, offset, **newer)
        if SharedMapping.keeping is _Keeping.PRIVATELY:
            if access != mmap.ACCESS_DEFAULT:
                prot = mmap.PROT_READ if access == mmap.ACCESS_READ else mmap.PROT_READ | mmap.PROT_WRITE
            private = flags & ~mmap.MAP_SHARED | mmap.MAP_PRIVATE
            return super().__new__(cls, -1, length, private, prot, mmap.ACCESS_DEFAULT, offset, **newer)
        problem = OSError()
        for directory in (SHARED_MEMORY_PATH, tempfile.gettempdir()):
            try:
                with _file_in(directory, offset + length) as file:
                    named = flags & ~mmap.MAP_ANONYMOUS
                    return super().__new__(cls, file.fileno(), length, named, prot, access, offset, **newer)
            except OSError as error:
                # The directory is missing, full, closed to this worker, or mounted without execution.
                problem = error
        explained = f"{length} bytes of shared memory: {problem.strerror}; private memory (MAP_PRIVATE) needs no file"
        raise OSError(problem.errno, explained) from problem


def are_shared_mappings_refused() -> bool:
    """Return whether the filters of workers on this machine refuse shared memory without a file."""
    return not _DRIVER_THAT_NEEDS_THEM.exists()


def replace_mmap() -> None:
    """Replace `mmap.mmap` before any code imports it by name.

    The new class behaves the same until `keep_in_files` or `keep_private` is called.
    """
    SharedMapping.__name__ = SharedMapping.__qualname__ = "mmap"
    SharedMapping.__module__ = "mmap"
    vars(mmap)["mmap"] = SharedMapping


def keep_in_files() -> None:
    """Keep shared memory from now on in files without a name, in /dev/shm or in the directory of temporary files."""
    SharedMapping.keeping = _Keeping.IN_FILES


def keep_private() -> None:
    """Make shared memory private from now on. Called in a process that starts no other process."""
    SharedMapping.keeping = _Keeping.PRIVATELY


@contextlib.contextmanager
def _file_in(directory: str, length: int) -> Iterator[IO[bytes]]:
    room = os.statvfs(directory)
    if length > room.f_bavail * room.f_frsize:
        # If the file system were full when the process first touches a page, the kernel would kill the process.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        file.truncate(length)
        yield file
