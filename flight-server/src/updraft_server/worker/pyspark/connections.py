# SPDX-License-Identifier: Apache-2.0
"""Connections of a worker exchange: byte streams between PySpark's worker and Spark, in Arrow batches.

A row of a batch is a piece of a stream; proto/README.md, "Worker exchanges", describes the columns. Connection 0 stands
for the connection of Spark's runner to its Python worker. The worker opens further connections, to services of the
runner's process.
"""

import io
import threading
from collections import deque
from typing import TYPE_CHECKING, NoReturn, Protocol

import pyarrow as pa

from updraft.errors import ProtocolError, UpdraftError
from updraft_server.ipc.frames import Buffer
from updraft_server.worker.exchange import RequestBatch

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

SCHEMA = pa.schema(
    [
        pa.field("connection", pa.int32(), nullable=False),
        pa.field("data", pa.binary()),
        pa.field("read", pa.int64(), nullable=False),
    ]
)
"""Schema of the batches in both directions."""

RUNNER = 0
"""Number of the connection to Spark's runner."""

BUFFER_BYTES = 256 * 1024
"""Size of the worker's buffers over the runner's connection. Bytes in them count as unread until the worker returns."""

REPORT_BYTES = 1024 * 1024
"""Bytes read from the runner between two reports. The client may send several times this many ahead of a report."""

# Interval at which a waiting thread checks whether another thread has received its piece.
_RECHECK_SECONDS = 0.02

# Room for Arrow's header and offsets in each reply.
_HEADER_BYTES = 2048


class Batches(Protocol):
    """Source and destination of the batches, such as `updraft_server.worker.exchange.Exchange`."""

    max_bytes_per_reply: int
    """Bytes above which a reply is split; 0 means no limit."""

    @property
    def descriptor(self) -> int:
        """Descriptor that becomes readable when a batch or the end of the input begins to arrive."""

    def acknowledge(self) -> None:
        """Tell the client that the worker has taken all batches so far."""

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until a batch begins to arrive. Return False if no batch does within `seconds`; None means no limit."""

    def take(self) -> RequestBatch | None:
        """Return the next batch; None after the client's last batch."""

    def reply(self, batch: pa.RecordBatch, *, sequence: int) -> None:
        """Send a batch."""

    def fail(self, error: UpdraftError) -> NoReturn:
        """Record and raise an error of the client. The record remains even if PySpark's worker catches the error."""


class Connections:
    """All connections of one exchange.

    Any thread may use the connections: a function may read ahead on another thread. No thread holds the lock while it
    waits for the client. If several threads wait, the first thread to acquire the lock takes the batch. The other
    threads check for their pieces every _RECHECK_SECONDS; `SharedConnections` wakes them at once.
    """

    def __init__(self, batches: Batches, opening: bytes = b"") -> None:
        """Start the runner's stream with `opening`. The client counts only the bytes after `opening`."""
        self._batches = batches
        self._lock = threading.RLock()
        self._failure: BaseException | None = None
        self._unread: dict[int, deque[memoryview]] = {RUNNER: deque([memoryview(opening)] if opening else [])}
        self._ended: set[int] = set()
        self._replies = 0
        self._read_bytes = -len(opening)
        self._reported_bytes = 0
        self._is_closed = False

    def open(self, address: str) -> int:
        """Open a connection to a service, by its port or path, and return the connection's number."""
        with self._lock:
            number = len(self._unread)
            self._unread[number] = deque()
            self.send(number, address.encode())
        return number

    def receive(self, number: int) -> memoryview:
        """Wait for a piece and return it; empty if the stream has ended. Raises UpdraftError."""
        while True:
            with self._lock:
                if self._failure is not None:
                    raise self._failure
                pieces = self._unread[number]
                if pieces or number in self._ended:
                    return pieces.popleft() if pieces else memoryview(b"")
                # The client may wait for this acknowledgement before it sends more.
                self._batches.acknowledge()
            self._batches.wait(_RECHECK_SECONDS if threading.active_count() > 1 else None)
            with self._lock:
                # Another thread may have taken the batch that arrived.
                if not pieces and number not in self._ended and self._batches.wait(0):
                    try:
                        self._take()
                    except BaseException as error:
                        # Keep the error for the other threads that wait for this client.
                        self._failure = error
                        raise

    def put_back(self, number: int, piece: memoryview) -> None:
        """Put the unread rest of a piece back."""
        with self._lock:
            self._unread[number].appendleft(piece)

    def has_read(self, size: int) -> None:
        """Count bytes that were copied into the input buffer of PySpark's worker."""
        with self._lock:
            self._read_bytes += size
            if self._surely_read_bytes - self._reported_bytes >= REPORT_BYTES:
                self._reply(RUNNER, None)

    @property
    def _surely_read_bytes(self) -> int:
        """Bytes from the runner that PySpark's worker has certainly read: its buffer may be full of unread bytes."""
        return max(self._reported_bytes, self._read_bytes - BUFFER_BYTES)

    def send(self, number: int, data: Buffer) -> None:
        """Send bytes, in several replies if need be; raises UpdraftError."""
        rest = memoryview(data).cast("B")
        most = max(1, (self._batches.max_bytes_per_reply or len(rest) + _HEADER_BYTES + 1) - _HEADER_BYTES)
        with self._lock:
            for start in range(0, len(rest), most):
                self._reply(number, rest[start : start + most])

    def end(self, number: int) -> None:
        """Tell the client that nothing more comes on a connection."""
        with self._lock:
            self._reply(number, memoryview(b""))

    def finish(self, unread_bytes: int) -> None:
        """Report how much the worker has read, end the runner's connection, and wait until the client ends it too.

        The client keeps the bytes that it has sent but the worker has not read, for the runner's next task.

        Args:
            unread_bytes: Bytes that are left in the buffer of PySpark's worker.
        """
        with self._lock:
            self._reply(RUNNER, memoryview(b""), max(0, self._read_bytes - unread_bytes))
            self.close()
        while self.receive(RUNNER):
            pass

    def close(self) -> None:
        """Drop everything that is sent from now on."""
        self._is_closed = True

    def _take(self) -> bool:
        """Take the client's next batch. Return False after the last batch."""
        request = self._batches.take()
        if request is None:
            self._ended.update(self._unread)
        else:
            self._sort(request.batch)
        return request is not None

    def _sort(self, batch: pa.RecordBatch) -> None:
        if not batch.schema.equals(SCHEMA):
            self._batches.fail(
                ProtocolError(f"a worker exchange has the schema {SCHEMA}, but a batch has {batch.schema}")
            )
        numbers, pieces, _ = batch.columns
        for number, piece in zip(numbers.to_pylist(), pieces, strict=True):
            if number not in self._unread:
                self._batches.fail(ProtocolError(f"connection {number} is not open"))
            data = piece.as_buffer()
            if data is None or not data.size:
                self._ended.add(number)
            else:
                self._unread[number].append(memoryview(data).cast("B"))

    def _reply(self, number: int, piece: memoryview | None, read_bytes: int | None = None) -> None:
        if self._is_closed:
            return
        self._replies += 1
        self._reported_bytes = self._surely_read_bytes if read_bytes is None else read_bytes
        data = pa.nulls(1, pa.binary()) if piece is None else _one_value(piece)
        columns = [pa.array([number], pa.int32()), data, pa.array([self._reported_bytes], pa.int64())]
        self._batches.reply(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), sequence=self._replies)


def _one_value(piece: memoryview) -> pa.Array:
    """Return a column with one value, without copying the value."""
    offsets = pa.py_buffer(bytes(4) + len(piece).to_bytes(4, "little"))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(piece)])


class ByteStream(io.RawIOBase):
    """One connection as a raw binary file without seeking."""

    def __init__(self, connections: Connections, number: int) -> None:
        super().__init__()
        self._connections = connections
        self._number = number
        self._is_at_end = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, target: "WriteableBuffer", /) -> int:
        """Wait for bytes, copy as many as fit, and return their number; 0 at the end. Raises UpdraftError."""
        piece = memoryview(b"") if self._is_at_end else self._connections.receive(self._number)
        room = memoryview(target).cast("B")
        copied = min(len(piece), len(room))
        room[:copied] = piece[:copied]
        if copied < len(piece):
            self._connections.put_back(self._number, piece[copied:])
        if self._number == RUNNER:
            self._connections.has_read(copied)
        return copied

    def write(self, data: "ReadableBuffer", /) -> int:
        """Send all bytes; raises UpdraftError."""
        view = memoryview(data)
        self._connections.send(self._number, view)
        return view.nbytes

    def stop_reading(self) -> None:
        """Return no more bytes, so that reads through a buffer return only the bytes that the buffer still holds."""
        self._is_at_end = True
