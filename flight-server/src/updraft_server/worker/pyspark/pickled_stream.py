# SPDX-License-Identifier: Apache-2.0
"""Replacement for the socket of PySpark's worker, for pickled UDFs (`SQL_BATCHED_UDF`).

Each value of the request's one binary column is a pickled list of rows. PySpark's worker reads them as lengths and
bytes, and writes a pickled list of results for each; these become the values of one reply per request.
"""

from collections import deque
from collections.abc import Iterator

import pyarrow as pa
from pyspark.serializers import SpecialLengths

from updraft.errors import InternalError, ProtocolError
from updraft_server.ipc.frames import Buffer
from updraft_server.worker.exchange import Exchange
from updraft_server.worker.pyspark.wire import INT, WorkerInput
from updraft_server.worker.request_batch import RequestBatch

REPLY_SCHEMA = pa.schema([pa.field("_0", pa.binary(), nullable=False)])


class PickledInput(WorkerInput):
    """Input file of PySpark's worker for one exchange of pickled rows."""

    def __init__(self, exchange: Exchange) -> None:
        _check_schema(exchange.schema)
        super().__init__(self._values())
        self._exchange = exchange

    def flush(self) -> None:
        """Send the results that were held back, before the next request is awaited."""

    def requested(self, values: int) -> None:
        """Note that a request with `values` values is about to be read."""

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
    """Input and output file of PySpark's worker for one exchange of pickled rows and as many results."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._owed: deque[tuple[int, int]] = deque()
        self._results: list[Buffer] = []
        self._result_bytes: int | None = None
        self.trailer = bytearray()

    def requested(self, values: int) -> None:
        """Note that a reply with `values` results is owed."""
        self._owed.append((self._exchange.consumed, values))

    def write(self, data: Buffer) -> int:
        """Take a whole length or a whole result; from a negative length on, everything belongs to the trailer."""
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
        """Raise ProtocolError if the values were not cut as PySpark cuts their results."""
        if self._owed:
            sequence, values = self._owed[0]
            raise ProtocolError(
                f"batch {sequence} has {values} values, for which pyspark made {len(self._results)}:"
                " every value but the last must hold PYTHON_UDF_BATCH_SIZE rows"
            )

    def _reply_when_complete(self) -> None:
        while self._owed and len(self._results) >= self._owed[0][1]:
            sequence, values = self._owed.popleft()
            results, self._results = self._results[:values], self._results[values:]
            column = pa.array(results, pa.binary())
            self._exchange.reply(pa.RecordBatch.from_arrays([column], schema=REPLY_SCHEMA), sequence=sequence)


def _check_schema(schema: pa.Schema) -> None:
    if len(schema) != 1 or schema.types[0] not in (pa.binary(), pa.large_binary()):
        raise ProtocolError(f"pickled UDFs take one binary column, not {schema.types}")
