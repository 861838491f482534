# SPDX-License-Identifier: Apache-2.0
"""Replacement for the socket of PySpark's worker, for functions over Arrow batches.

Every Arrow serializer of PySpark reads and writes through `ArrowStreamSerializer.load_stream` and `.dump_stream`.
`install` replaces these two methods. The new ones recognise an `ArrowStream` and pass validated record batches through
without copying them; for any other stream they call PySpark's methods. The init message and the trailer still travel as
bytes through `read` and `write`.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.serializers import SpecialLengths

from updraft_server.ipc.frames import Buffer
from updraft_server.worker.pyspark.wire import INT, WorkerInput
from updraft_server.worker.replies import Replies

# After its data the worker looks for this mark, which says that Spark is done too.
LAST_MARK = INT.pack(SpecialLengths.END_OF_STREAM)


class ArrowStream(WorkerInput):
    """Input and output file of PySpark's worker for one exchange."""

    def __init__(self, replies: Replies, batches: Iterable[pa.RecordBatch]) -> None:
        super().__init__([LAST_MARK])
        self._replies = replies
        self._batches = batches
        self.trailer = bytearray()

    def write(self, data: Buffer) -> int:
        """Keep bytes that are not batches for the trailer."""
        self.trailer += data
        return len(data)

    def flush(self) -> None:
        """Send the results that were held back."""
        self._replies.flush()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the arguments, in slices of at most as many rows as the function may see at once."""
        return iter(self._batches)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch of results."""
        self._replies.add(batch)

    def close(self) -> None:
        """Finish the replies; raises UserError if the function owes rows."""
        self._replies.close()


def install(serializer: Any) -> None:
    """Replace the two methods of PySpark's `ArrowStreamSerializer`."""
    stock_load, stock_dump = serializer.load_stream, serializer.dump_stream

    @functools.wraps(stock_load)
    def load_stream(self: Any, stream: Any) -> Iterator[pa.RecordBatch]:
        if isinstance(stream, ArrowStream):
            return stream.batches()
        return stock_load(self, stream)  # type: ignore[no-any-return]

    @functools.wraps(stock_dump)
    def dump_stream(self: Any, iterator: Iterable[pa.RecordBatch], stream: Any) -> None:
        if not isinstance(stream, ArrowStream):
            stock_dump(self, iterator, stream)
            return
        for batch in iterator:
            stream.add(batch)

    serializer.load_stream = load_stream
    serializer.dump_stream = dump_stream
