# SPDX-License-Identifier: Apache-2.0
"""Segment: shared memory of one exchange through which bodies pass between a client on this node and the front.

The front's own code never reads or writes the mapped memory; it only passes ranges of this memory to system calls. A
client can truncate the file at any time. If the front's code then read mapped memory beyond the new end, a signal would
end the process. A system call on this memory only fails.
"""

import asyncio
import contextlib
import errno
import mmap
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

import structlog

from updraft.errors import ProtocolError
from updraft.v1 import exchange_pb2
from updraft_server.ipc.frame_stream import BodyPlace
from updraft_server.sandbox_layers import SHARED_MEMORY_PATH

LEAST_BODY_BYTES = 64 * 1024
"""Size from which a body passes through a segment. A smaller one costs less inside its message."""

LEAST_EXCHANGE_BYTES = 4 * 1024 * 1024
"""Bytes that an exchange passes before it gets a segment. Allocating one costs as much CPU as passing some batches."""

_NAME = "updraft-segment-"
_CONTROL_BYTES = 4096
# Offsets of the two numbers that the client writes: the position up to which it has read, and whether it has opened the
# file.
_READ_POSITION, _OPENED = 0, 8
_RING_BYTES = 4 * 1024 * 1024
_SEGMENT_BYTES = _CONTROL_BYTES + 2 * _RING_BYTES

# Time limit for removing the files of exchanges that still run when the process ends.
_CLOSE_SECONDS = 1.0

_log = structlog.get_logger(__name__)


class _Ring:
    """Positions of one direction. A range never wraps: if it does not fit before the ring's end, it starts at 0."""

    def __init__(self, start: int) -> None:
        self._start = start
        self.written = 0
        """Position after the last range."""

    def next(self, size_bytes: int) -> int:
        """Return the position of a range that follows the last one."""
        behind = _RING_BYTES - self.written % _RING_BYTES
        return self.written if size_bytes <= behind else self.written + behind

    def offset(self, position: int) -> int:
        """Return the place of a position in the file."""
        return self._start + position % _RING_BYTES


class Segment:
    """Segment of one exchange."""

    def __init__(self, directory: Path, mode: int, later: Callable[[Callable[[], object]], None]) -> None:
        """Make the segment as a file with these permissions; raises OSError. This takes milliseconds.

        Args:
            directory: Where the file is made.
            mode: Permissions of the file.
            later: Makes another thread call a function, which closes or removes the file.
        """
        self._path = directory / f"{_NAME}{secrets.token_hex(16)}"
        self._later = later
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(self._descriptor, mode)
            if directory.is_relative_to(SHARED_MEMORY_PATH):
                _check_share(self._descriptor)
            # Allocate all memory now: if it ran out later, the client would get a signal while it writes, not an error.
            os.posix_fallocate(self._descriptor, 0, _SEGMENT_BYTES)
            self._mapping = mmap.mmap(self._descriptor, _SEGMENT_BYTES)
        except BaseException:
            os.close(self._descriptor)
            self._path.unlink()
            raise
        self._memory = memoryview(self._mapping)
        self._requests = _Ring(_CONTROL_BYTES)
        self._replies = _Ring(_CONTROL_BYTES + _RING_BYTES)
        self._read = 0
        self._is_mapped = False

    @property
    def offer(self) -> exchange_pb2.Segment:
        """Message that tells the client the name and size of the segment."""
        return exchange_pb2.Segment(name=self._path.name, ring_bytes=_RING_BYTES)

    def request(self, asked: exchange_pb2.SegmentRange) -> memoryview:
        """Return the memory of a request's body, for system calls; raise ProtocolError for an impossible range."""
        self._mapped_by_client()
        if not 0 < asked.size_bytes <= _RING_BYTES:
            raise ProtocolError(
                f"a body in the segment has {asked.size_bytes} bytes; it must have between 1 and {_RING_BYTES}"
            )
        expected = self._requests.next(asked.size_bytes)
        if asked.position != expected:
            raise ProtocolError(f"a body is at position {asked.position} of the segment; it must be at {expected}")
        self._requests.written = asked.position + asked.size_bytes
        return self._at(self._requests.offset(asked.position), asked.size_bytes)

    def reserve(self, size_bytes: int) -> BodyPlace | None:
        """Reserve a place for a reply's body. Return None if the ring is full or takes no body of this size."""
        if not LEAST_BODY_BYTES <= size_bytes <= _RING_BYTES:
            return None
        # Some clients cannot map the file, because its directory is not visible to them.
        if not self._is_mapped and not self._control(_OPENED):
            return None
        self._mapped_by_client()
        position = self._replies.next(size_bytes)
        if not self._has_room(position, size_bytes):
            self._read = self._read_by_client()
            if not self._has_room(position, size_bytes):
                return None
        self._replies.written = position + size_bytes
        return BodyPlace(self._at(self._replies.offset(position), size_bytes), position)

    def close(self) -> None:
        """Remove the file and unmap it. The kernel frees the memory after the client has unmapped it too."""
        # A reply that is still being sent keeps its memory.
        with contextlib.suppress(BufferError):
            self._memory.release()
        self._later(self._free)

    def _free(self) -> None:
        self._remove()
        os.close(self._descriptor)
        with contextlib.suppress(BufferError):
            self._mapping.close()

    def _remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def _mapped_by_client(self) -> None:
        if not self._is_mapped:
            self._is_mapped = True
            self._later(self._remove)

    def _has_room(self, position: int, size_bytes: int) -> bool:
        is_empty = self._read == self._replies.written
        return is_empty or position + size_bytes - self._read <= _RING_BYTES

    def _at(self, offset: int, size_bytes: int) -> memoryview:
        return self._memory[offset : offset + size_bytes]

    def _read_by_client(self) -> int:
        read = self._control(_READ_POSITION)
        if not self._read <= read <= self._replies.written:
            raise ProtocolError(
                f"the client reports that it has read up to position {read} of the segment; it must be between "
                f"{self._read} and {self._replies.written}"
            )
        return read

    def _control(self, offset: int) -> int:
        return int.from_bytes(os.pread(self._descriptor, 8, offset), "little")


def _check_share(descriptor: int) -> None:
    """Raise OSError if less than half of the volume would be free: functions use /dev/shm too, and it may be small."""
    volume = os.fstatvfs(descriptor)
    if (volume.f_bavail - volume.f_blocks // 2) * volume.f_frsize < _SEGMENT_BYTES:
        raise OSError(errno.ENOSPC, "segments may use only half of /dev/shm, because functions need the rest")


class Segments:
    """Segments of a front, in a directory that only the user of this process can list."""

    def __init__(self, directory: Path | None, access: Literal["owner", "group", "everyone"]) -> None:
        """Make the directory; if that is impossible, there are no segments.

        Args:
            directory: Directory that no other front uses; None if there are no segments.
            access: Users who may use segments: the users who may connect to the pool's Unix socket.
        """
        self.directory: Path | None = None
        """Directory of the segments; None if there are none."""
        self._mode = {"owner": 0o600, "group": 0o660, "everyone": 0o666}[access]
        if directory is None:
            return
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            found = directory.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise PermissionError(f"{directory} belongs to another user")
            # Other users may open a file if they know its name. Files in a directory for a group inherit that group.
            directory.chmod(0o711 | (found.st_mode & stat.S_ISGID))
        except OSError as error:
            _log.warning("cannot use segments: all batches pass through connections", reason=str(error))
            return
        self.directory = directory
        # A client can make system calls on its file block. One thread makes and removes all files, so that the front
        # never blocks.
        self._work: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._has_warned = False
        threading.Thread(target=self._run, name="segments", daemon=True).start()
        self._work.put(partial(_clear, directory))

    async def make(self) -> Segment | None:
        """Make a segment. Return None if the pool has no directory or no memory for it."""
        if self.directory is None:
            return None
        loop = asyncio.get_running_loop()
        made: asyncio.Future[Segment | None] = loop.create_future()
        directory = self.directory

        def make() -> None:
            segment = None
            try:
                segment = Segment(directory, self._mode, self._work.put)
            except Exception as error:
                log = _log.debug if self._has_warned else _log.warning
                self._has_warned = True
                log("cannot make a segment for an exchange: its batches pass through the connection", reason=str(error))
            loop.call_soon_threadsafe(_settle, made, segment)

        self._work.put(make)
        return await made

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Exception as error:
                _log.warning("cannot remove the file of a segment", reason=str(error))

    def close(self) -> None:
        """Remove the directory, at the end of the process; wait a limited time for that."""
        if (directory := self.directory) is not None:
            self.directory = None
            removed = threading.Event()
            self._work.put(partial(shutil.rmtree, directory, ignore_errors=True))
            self._work.put(removed.set)
            removed.wait(_CLOSE_SECONDS)


def _settle(made: asyncio.Future[Segment | None], segment: Segment | None) -> None:
    if not made.done():
        made.set_result(segment)
    elif segment is not None:
        segment.close()


def _clear(directory: Path) -> None:
    """Remove files that an earlier front has left."""
    for left in directory.iterdir():
        left.unlink(missing_ok=True)
