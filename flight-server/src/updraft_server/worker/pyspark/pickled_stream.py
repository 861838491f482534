# SPDX-License-Identifier: Apache-2.0
"""Replacement for the socket of PySpark's worker, for pickled UDFs (`SQL_BATCHED_UDF`).

A request has one binary column, and each value of the column is a pickled list of rows. PySpark's worker reads the
length and the bytes of each value, and writes one pickled list of results for each value. The lists of results for one
request become the values of one reply.

PySpark's worker would divide the results into lists of a fixed length. `install` makes each list of results as long as
the list of rows that it answers, so that a client may end a list at any row.

For table functions (`SQL_TABLE_UDF`) the input is the same. For each row, PySpark's worker writes the length and the
bytes of one pickled output. Many outputs become the values of one reply. A large output becomes several values.
"""

import functools
import io
import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.serializers import SpecialLengths

from updraft.errors import InternalError, ProtocolError
from updraft_server.ipc.frames import Buffer
from updraft_server.worker.exchange import Exchange, RequestBatch
from updraft_server.worker.pyspark.wire import INT, WorkerInput

# PySpark's own output file has a buffer of this size.
_BUFFER_BYTES = 64 * 1024
_REPLY_BYTES = 256 * 1024
_LAST_MARK = INT.pack(SpecialLengths.END_OF_STREAM)


REPLY_SCHEMA = pa.schema([pa.field("_0", pa.binary(), nullable=False)])


class PickledInput(WorkerInput):
    """Input file of PySpark's worker for one exchange of pickled rows."""

    def __init__(self, exchange: Exchange) -> None:
        _check_schema(exchange.schema)
        super().__init__(self._values())
        self._exchange = exchange

    def flush(self) -> None:
        """Send the results that are held back. Called before each wait for a request."""

    def requested(self, values: int) -> None:
        """Record that PySpark's worker is about to read a request with `values` values."""

    def _next_request(self) -> RequestBatch | None:
        self.flush()
        return self._exchange.take()

    def _values(self) -> Iterator[bytes]:
        """Yield length and bytes of each value, then the end marks."""
        while (request := self._next_request()) is not None:
            column = request.batch.column(0)
            if column.null_count:
                self._exchange.fail(
                    ProtocolError(f"batch {self._exchange.consumed} has null where pickled rows must be")
                )
            self.requested(len(column))
            for value in column.to_pylist():
                yield INT.pack(len(value))
                yield value
        yield INT.pack(SpecialLengths.END_OF_DATA_SECTION)
        yield INT.pack(SpecialLengths.END_OF_STREAM)


class PickledStream(PickledInput):
    """Input and output file of PySpark's worker for one exchange of pickled rows, with one result for each row."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._lengths: deque[int] = deque()
        self._owed: deque[tuple[int, int]] = deque()
        self._results: list[Buffer] = []
        self._result_bytes: int | None = None
        self.trailer = bytearray()

    def requested(self, values: int) -> None:
        """Record that the worker owes a reply with `values` results."""
        self._owed.append((self._exchange.consumed, values))
        self._reply_when_complete()

    def counted(self, lists: Iterable[list[Any]]) -> Iterator[list[Any]]:
        """Yield lists of rows, and note their lengths."""
        for rows in lists:
            if rows:
                self._lengths.append(len(rows))
            yield rows

    def divided(self, results: Iterable[Any]) -> Iterator[list[Any]]:
        """Yield the results in lists that are as long as the lists of rows, without reading lists of rows ahead."""
        remaining = iter(results)
        for first in remaining:
            yield [first, *itertools.islice(remaining, self._lengths.popleft() - 1)]

    def write(self, data: Buffer) -> int:
        """Receive a whole length or a whole result. The trailer begins with the first negative length."""
        if self.trailer:
            self.trailer += data
        elif self._result_bytes is None:
            self._result_bytes = INT.unpack(data)[0]
            if self._result_bytes < 0:
                self.trailer += data
        else:
            if len(data) != self._result_bytes:
                self._exchange.fail(
                    InternalError(f"pyspark's worker announced {self._result_bytes} bytes and wrote {len(data)}")
                )
            self._result_bytes = None
            self._results.append(data)
            self._reply_when_complete()
        return len(data)

    def close(self) -> None:
        """Raise ProtocolError if a list of rows was empty, because PySpark's worker writes no results for it."""
        if self._owed:
            sequence, values = self._owed[0]
            raise ProtocolError(
                f"batch {sequence} has {values} values, but pyspark returned {len(self._results)} results:"
                " every value must contain a row"
            )

    def _reply_when_complete(self) -> None:
        while self._owed and len(self._results) >= self._owed[0][1]:
            sequence, values = self._owed.popleft()
            results, self._results = self._results[:values], self._results[values:]
            column = pa.array(results, pa.binary())
            self._exchange.reply(pa.RecordBatch.from_arrays([column], schema=REPLY_SCHEMA), sequence=sequence)


def install(serializer: Any) -> None:
    """Replace the two methods of PySpark's `BatchedSerializer` that read and write lists."""
    stock_load, stock_dump = serializer.load_stream, serializer.dump_stream

    @functools.wraps(stock_load)
    def load_stream(self: Any, stream: Any) -> Iterator[Any]:
        if isinstance(stream, PickledStream):
            return itertools.chain.from_iterable(stream.counted(self.serializer.load_stream(stream)))
        return stock_load(self, stream)  # type: ignore[no-any-return]

    @functools.wraps(stock_dump)
    def dump_stream(self: Any, iterator: Iterable[Any], stream: Any) -> None:
        if isinstance(stream, PickledStream):
            self.serializer.dump_stream(stream.divided(iterator), stream)
        else:
            stock_dump(self, iterator, stream)

    serializer.load_stream = load_stream
    serializer.dump_stream = dump_stream


def _check_schema(schema: pa.Schema) -> None:
    if len(schema) != 1 or schema.types[0] not in (pa.binary(), pa.large_binary()):
        raise ProtocolError(f"pickled UDFs take one binary column, not {schema.types}")


class PickledTableStream(PickledInput):
    """Input and output file of PySpark's worker for one exchange of pickled rows and their outputs."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._outputs = _Outputs(exchange)
        self._buffer = io.BufferedWriter(self._outputs, _BUFFER_BYTES)
        # Look the method up only once, because PySpark calls it twice for each row.
        self.write = self._buffer.write

    @property
    def trailer(self) -> bytearray:
        """Bytes that PySpark's worker wrote after the outputs."""
        self._buffer.flush()
        return self._outputs.trailer

    def read(self, size: int) -> bytes:
        """Read input as for pickled UDFs. After the last output, return the end mark even if input is left."""
        return _LAST_MARK if self.trailer else super().read(size)

    def flush(self) -> None:
        """Send the outputs that are held back."""
        self._buffer.flush()
        self._outputs.send()

    def close(self) -> None:
        """Send the remaining outputs."""
        self.flush()


class _Outputs(io.RawIOBase):
    """Parser of the bytes that PySpark's worker writes, in pieces of any size. It sends many outputs in one reply."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._sequence = 0
        self._incomplete = b""
        self._values: list[bytes] = []
        self._value_bytes = 0
        self._ends: list[int] = []
        self.trailer = bytearray()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Receive lengths and outputs. The trailer begins with the first negative length."""
        if self.trailer:
            self.trailer += data
            return len(data)
        unread = self._incomplete + bytes(data)
        start = 0
        while start + INT.size <= len(unread):
            length = INT.unpack_from(unread, start)[0]
            if length < 0:
                self.trailer += unread[start:]
                start = len(unread)
                break
            end = start + INT.size + length
            if end > len(unread):
                break
            self._add(unread[start + INT.size : end])
            start = end
        self._incomplete = unread[start:]
        return len(data)

    def send(self) -> None:
        """Send the complete outputs."""
        if not self._values:
            return
        values, ends = self._values, self._ends
        self._values, self._value_bytes, self._ends = [], 0, []
        self._sequence += 1
        batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=REPLY_SCHEMA)
        self._exchange.reply(batch, sequence=self._sequence, row_ends=ends)

    def _add(self, output: bytes) -> None:
        for start in range(0, len(output), _REPLY_BYTES):
            if self._value_bytes >= _REPLY_BYTES:
                self.send()
            piece = output[start : start + _REPLY_BYTES]
            self._values.append(piece)
            self._value_bytes += len(piece)
        self._ends.append(len(self._values))
