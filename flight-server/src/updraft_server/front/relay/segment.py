# SPDX-License-Identifier: Apache-2.0
"""Segment: shared memory of one exchange through which bodies pass between a client on this node and the front.

The front's own code never reads or writes the mapped memory; it names ranges of it in system calls. The client can cut
the file at any time. What it has cut would then end the process with a signal, while a system call only fails.
"""

import mmap
import os
import secrets
from pathlib import Path
from typing import Literal

import structlog

from updraft.errors import ProtocolError
from updraft.service.lifecycle import StartError
from updraft.v1 import exchange_pb2
from updraft_server.ipc.frame_stream import BodyPlace

PATTERN = "updraft-segment-*"
"""Names of segments in their directory."""

LEAST_BODY_BYTES = 64 * 1024
"""Size from which a body passes through a segment. A smaller one costs less inside its message."""

LEAST_EXCHANGE_BYTES = 4 * 1024 * 1024
"""Bytes that an exchange passes before it gets a segment. Fresh memory costs as much CPU as some batches do."""

_CONTROL_BYTES = 4096
# Offsets of the client's numbers.
_READ_POSITION, _OPENED = 0, 8
_RING_BYTES = 4 * 1024 * 1024

_log = structlog.get_logger(__name__)


class _Ring:
    """Positions of one direction. A range does not reach beyond the ring's end; the bytes before that are skipped."""

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

    def __init__(self, directory: Path, mode: int) -> None:
        """Make the segment as a file with these permissions; raises OSError."""
        self._path = directory / PATTERN.replace("*", secrets.token_hex(16))
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._named = True
        try:
            os.fchmod(self._descriptor, mode)
            # If the memory ran out while the client writes, the client would get a signal instead of an error.
            os.posix_fallocate(self._descriptor, 0, _CONTROL_BYTES + 2 * _RING_BYTES)
            self._memory = memoryview(mmap.mmap(self._descriptor, _CONTROL_BYTES + 2 * _RING_BYTES))
        except BaseException:
            self.close()
            raise
        self._requests = _Ring(_CONTROL_BYTES)
        self._replies = _Ring(_CONTROL_BYTES + _RING_BYTES)
        self._read = 0
        self._opened = False

    @property
    def offer(self) -> exchange_pb2.Segment:
        """Message that tells the client about the segment."""
        return exchange_pb2.Segment(path=str(self._path), ring_bytes=_RING_BYTES)

    def request(self, asked: exchange_pb2.SegmentRange) -> memoryview:
        """Return the memory of a request's body, for system calls; raise ProtocolError for an impossible range."""
        self._forget_name()
        expected = self._requests.next(asked.size_bytes)
        if asked.position != expected or not 0 < asked.size_bytes <= _RING_BYTES:
            raise ProtocolError(
                f"a body of {asked.size_bytes} bytes is at position {asked.position} of the segment, not at {expected}"
            )
        self._requests.written = asked.position + asked.size_bytes
        return self._at(self._requests.offset(asked.position), asked.size_bytes)

    def reserve(self, size_bytes: int) -> BodyPlace | None:
        """Return a place for a reply's body; None if the body is too small or too large, or there is no room now."""
        if size_bytes < LEAST_BODY_BYTES or size_bytes > _RING_BYTES or not self._is_opened():
            return None
        position = self._replies.next(size_bytes)
        if position + size_bytes - self._read > _RING_BYTES:
            self._read = self._read_by_client()
            if position + size_bytes - self._read > _RING_BYTES:
                return None
        self._replies.written = position + size_bytes
        offset = self._replies.offset(position)
        return BodyPlace(self._descriptor, offset, self._at(offset, size_bytes), position)

    def close(self) -> None:
        """Remove the file. The memory is freed when the client, too, has unmapped it. Idempotent."""
        self._forget_name()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _at(self, offset: int, size_bytes: int) -> memoryview:
        return self._memory[offset : offset + size_bytes]

    def _is_opened(self) -> bool:
        """Return whether the client has mapped the file. Some cannot, because they do not see its directory."""
        if not self._opened and self._control(_OPENED):
            self._opened = True
            self._forget_name()
        return self._opened

    def _read_by_client(self) -> int:
        read = self._control(_READ_POSITION)
        if not self._read <= read <= self._replies.written:
            raise ProtocolError(
                f"the client has read up to position {read} of the segment, after {self._read} and of "
                f"{self._replies.written}"
            )
        return read

    def _control(self, offset: int) -> int:
        return int.from_bytes(os.pread(self._descriptor, 8, offset), "little")

    def _forget_name(self) -> None:
        if self._named:
            self._named = False
            self._path.unlink(missing_ok=True)


class Segments:
    """Maker of segments in one directory, which it clears of those that an earlier front has left."""

    def __init__(self, directory: Path | None, access: Literal["owner", "group", "everyone"]) -> None:
        """Clear the directory; raise StartError if the pool cannot use it.

        Args:
            directory: Where segments are made; None makes none.
            access: Users who may connect to the pool's Unix socket, and use segments.
        """
        self._directory = directory
        self._mode = {"owner": 0o600, "group": 0o660, "everyone": 0o666}[access]
        if directory is not None and not (directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)):
            raise StartError(f"--segment-directory {directory} is no directory in which the pool may make files")
        if directory is not None:
            for left in directory.glob(PATTERN):
                try:
                    left.unlink(missing_ok=True)
                except PermissionError:
                    # It belongs to another pool.
                    continue

    def make(self) -> Segment | None:
        """Return a new segment; None if there shall be none, or if there is no memory for one."""
        if self._directory is None:
            return None
        try:
            return Segment(self._directory, self._mode)
        except OSError as error:
            _log.warning("no segment for an exchange: bodies pass through the socket", reason=str(error))
            return None
