# SPDX-License-Identifier: Apache-2.0
"""Replacement for the socket of PySpark's worker, for pickled table functions (`SQL_TABLE_UDF`).

The input is that of pickled UDFs. For each row PySpark's worker writes the length and the bytes of one pickled output.
Many outputs become the values of one reply; a large output becomes several values.
"""

import io
from typing import Any

import pyarrow as pa
from pyspark.serializers import SpecialLengths

from updraft_server.worker.exchange import Exchange
from updraft_server.worker.pyspark.pickled_stream import REPLY_SCHEMA, PickledInput
from updraft_server.worker.pyspark.wire import INT

# PySpark's own output file has a buffer of this size.
_BUFFER_BYTES = 64 * 1024
_REPLY_BYTES = 256 * 1024
_LAST_MARK = INT.pack(SpecialLengths.END_OF_STREAM)


class PickledTableStream(PickledInput):
    """Input and output file of PySpark's worker for one exchange of pickled rows and their outputs."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._outputs = _Outputs(exchange)
        self._buffer = io.BufferedWriter(self._outputs, _BUFFER_BYTES)
        # Bound here because it is called twice for each row.
        self.write = self._buffer.write

    @property
    def trailer(self) -> bytearray:
        """Bytes that came after the outputs."""
        self._buffer.flush()
        return self._outputs.trailer

    def read(self, size: int) -> bytes:
        """Read input as pickled UDFs do; after the outputs, return the end mark even if input is left."""
        return _LAST_MARK if self.trailer else super().read(size)

    def flush(self) -> None:
        """Send the outputs that were held back."""
        self._buffer.flush()
        self._outputs.send()

    def close(self) -> None:
        """Send the remaining outputs."""
        self.flush()


class _Outputs(io.RawIOBase):
    """Parser of the outputs in the bytes of PySpark's worker, which may be cut anywhere; sends many outputs at once."""

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
        """Take lengths and outputs; from a negative length on, everything belongs to the trailer."""
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
