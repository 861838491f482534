# SPDX-License-Identifier: Apache-2.0
"""Byte streams of a worker exchange: what Spark's runner and PySpark's worker write to each other, in Arrow batches.

A row of a batch is a piece of a stream. The column `connection` names the stream. Stream 0 is the one that Spark opens
to a Python worker. An empty piece ends a stream in its direction.
"""

import io
from collections import deque
from typing import Protocol

import pyarrow as pa

from updraft.errors import ProtocolError
from updraft_server.ipc.frames import Buffer
from updraft_server.worker.exchange import RequestBatch

SCHEMA = pa.schema([pa.field("connection", pa.int32(), nullable=False), pa.field("data", pa.binary(), nullable=False)])
"""Schema of the batches in both directions."""

RUNNER = 0
"""Connection of Spark's runner."""

BUFFER_BYTES = 256 * 1024
"""Bytes that PySpark's worker writes before a batch leaves. It flushes its output itself where Spark waits for it."""


class Batches(Protocol):
    """Source and destination of the batches, such as `updraft_server.worker.exchange.Exchange`."""

    max_bytes_per_reply: int
    """Bytes above which a reply is split."""

    def take(self) -> RequestBatch | None:
        """Return the next batch; None after the client's last one."""

    def reply(self, batch: pa.RecordBatch, *, sequence: int) -> None:
        """Send a batch."""


class ByteStream(io.RawIOBase):
    """Stream of Spark's runner as a raw binary file, without seeking."""

    def __init__(self, batches: Batches) -> None:
        super().__init__()
        self._batches = batches
        self._unread: deque[memoryview] = deque()
        self._replies = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, target: Buffer) -> int:
        """Wait for bytes and copy as many as there are and fit; 0 after the last. Raises UpdraftError."""
        if not self._unread and not self._receive():
            return 0
        piece = self._unread.popleft()
        room = memoryview(target).cast("B")
        copied = min(len(piece), len(room))
        room[:copied] = piece[:copied]
        if copied < len(piece):
            self._unread.appendleft(piece[copied:])
        return copied

    def write(self, data: Buffer) -> int:
        """Send all bytes, in several replies if need be; raises UpdraftError."""
        rest = memoryview(data).cast("B")
        # Leave room for Arrow's header and the offsets.
        most = max(1, (self._batches.max_bytes_per_reply or len(rest) + 2048) - 1024)
        for start in range(0, len(rest), most):
            self._send(rest[start : start + most])
        return len(rest)

    def end(self) -> None:
        """Tell the client that nothing more is coming, and wait for its last batch; raises ProtocolError."""
        self._send(memoryview(b""))
        while self._unread or self._receive():
            if any(self._unread):
                raise ProtocolError("bytes came after PySpark's worker had returned")
            self._unread.clear()

    def _receive(self) -> bool:
        """Wait until there are unread bytes; return False if there are none to come."""
        while not self._unread:
            request = self._batches.take()
            if request is None:
                return False
            self._add(request.batch)
        return True

    def _add(self, batch: pa.RecordBatch) -> None:
        if not batch.schema.equals(SCHEMA):
            raise ProtocolError(f"a worker exchange has the schema {SCHEMA}, but a batch has {batch.schema}")
        connections, pieces = batch.columns
        for connection, piece in zip(connections, pieces, strict=True):
            if connection.as_py() != RUNNER:
                raise ProtocolError(f"connection {connection.as_py()} is not open")
            if (data := piece.as_buffer()) is not None and data.size:
                self._unread.append(memoryview(data).cast("B"))

    def _send(self, piece: memoryview) -> None:
        self._replies += 1
        offsets = pa.py_buffer(b"\0\0\0\0" + len(piece).to_bytes(4, "little"))
        data = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(piece)])
        batch = pa.RecordBatch.from_arrays([pa.array([RUNNER], pa.int32()), data], schema=SCHEMA)
        self._batches.reply(batch, sequence=self._replies)
