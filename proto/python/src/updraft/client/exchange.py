# SPDX-License-Identifier: Apache-2.0
"""Client side of exchanges with registered functions. It chooses the next message and interprets replies.

This module has neither transport nor locks: `pool_client` and `async_pool_client` carry the messages. proto/README.md
specifies the messages.
"""

from collections import deque
from collections.abc import Iterable, Iterator

import pyarrow as pa

from updraft.arrow_bytes import data_bytes
from updraft.arrow_decoder import encapsulated_message
from updraft.batch_parts import PART_BYTES, BatchParts, last_part, parts_before_last
from updraft.client.called_function import CalledFunction
from updraft.errors import ProtocolError, UpdraftError, error_from_message
from updraft.flight_data import FlightFields, join_flight_data, split_flight_data
from updraft.v1.exchange_pb2 import Finish, KeepAlive, ReplyMetadata, RequestMetadata

KEEPALIVE_SECONDS = 30.0
"""Interval of keepalive messages, which tell the pool that an idle client is still alive."""

KEEPALIVE = join_flight_data(
    memoryview(b""), RequestMetadata(keep_alive=KeepAlive()).SerializeToString(), memoryview(b"")
)

MAX_BATCH_BYTES = 4 << 20
MAX_BATCH_ROWS = 1 << 16
"""Maximum number of rows of a batch. The client cuts larger tables; a single row may exceed `MAX_BATCH_BYTES`."""

# The window: maximum number and bytes of batches that are sent and not yet answered.
_WINDOW_BATCHES = 8
_WINDOW_BYTES = 32 << 20
# Limit for batches sent before the pool has admitted the exchange. The protocol allows 64 KiB, including the command.
_BYTES_BEFORE_ADMISSION = 32 << 10
_BODY_IN_ONE_MESSAGE_BYTES = 2 * PART_BYTES
_MAX_REPLY_BYTES = (2 << 30) - 1
_NOTHING = memoryview(b"")


def cut(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of bounded size."""
    for batch in table.to_batches(max_chunksize=MAX_BATCH_ROWS):
        slices = max(1, -(-data_bytes(batch) // MAX_BATCH_BYTES))
        rows = max(1, -(-batch.num_rows // slices))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


class Backlog:
    """Unanswered batches of one call, oldest first. If an exchange is lost, the next exchange sends them again."""

    def __init__(self) -> None:
        self._batches: deque[pa.RecordBatch] = deque()
        self._sent = 0
        self._sent_bytes = 0
        self.released = 0
        """Number of batches that need not be sent again."""
        self.is_complete = False
        """Whether no more batches will be added."""

    @property
    def has_room(self) -> bool:
        """Whether to read another batch now. Batches that are already in memory need not wait for room."""
        return len(self._batches) < 2 * _WINDOW_BATCHES and sum(map(data_bytes, self._batches)) < 2 * _WINDOW_BYTES

    @property
    def all_sent(self) -> bool:
        """Whether this exchange has sent the last batch."""
        return self.is_complete and self._sent == len(self._batches)

    def add(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""
        self._batches.append(batch)

    def next_to_send(self, *, admitted: bool) -> pa.RecordBatch | None:
        """Return the next batch if the window has room for it, and count it as sent."""
        if self._sent == len(self._batches):
            return None
        batch = self._batches[self._sent]
        size_bytes = data_bytes(batch)
        if not admitted and (self._sent or size_bytes > _BYTES_BEFORE_ADMISSION):
            return None
        if self._sent >= _WINDOW_BATCHES or (self._sent and self._sent_bytes + size_bytes > _WINDOW_BYTES):
            return None
        self._sent += 1
        self._sent_bytes += size_bytes
        return batch

    def release(self) -> pa.RecordBatch:
        """Remove and return the oldest batch; raise ProtocolError if no sent batch awaits an answer."""
        if not self._sent:
            raise ProtocolError("the pool answered more batches than it was sent")
        batch = self._batches.popleft()
        self._sent -= 1
        self._sent_bytes -= data_bytes(batch)
        self.released += 1
        return batch

    def begin_again(self) -> None:
        """Mark the remaining batches as unsent, for a new exchange."""
        self._sent = self._sent_bytes = 0


class Exchange:
    """One exchange: the messages to send, from the backlog, and the results in the replies."""

    def __init__(self, function: CalledFunction, schema: pa.Schema, backlog: Backlog) -> None:
        backlog.begin_again()
        self._function = function
        self._schema = schema
        self._backlog = backlog
        self._released_before = backlog.released
        self._sent_batches = self._sent_rows = 0
        self._result_schema: pa.Schema | None = None
        self._parts: BatchParts | None = None
        self._results = self._result_rows = 0
        self._row = 0
        self._admitted = False
        self.sent_finish = False
        """Whether the last message was sent."""
        self.has_sent_rows = False
        """Whether any batch was sent. If so, the function may have seen this batch."""
        self.has_started = False
        """Whether the function has taken a batch or returned one."""
        self.is_finished = False
        """Whether the pool has confirmed that it sent everything."""
        self.error: UpdraftError | None = None
        """Error that the pool sent in-band."""

    def first_message(self) -> bytes:
        """Return the message with the command and the schema of the arguments."""
        from pyarrow import flight

        header = memoryview(pa.ipc.read_message(self._schema.serialize()).metadata).cast("B")
        descriptor = flight.FlightDescriptor.for_command(self._function.command().SerializeToString())
        return join_flight_data(header, b"", _NOTHING, descriptor=bytes(descriptor.serialize()))

    def next_messages(self) -> list[bytes]:
        """Return the messages of the next batch, or the last message; nothing if neither can be sent now."""
        batch = self._backlog.next_to_send(admitted=self._admitted)
        if batch is not None:
            self.has_sent_rows = True
            self._sent_batches += 1
            self._sent_rows += batch.num_rows
            return list(_messages_of(batch, self._sent_batches))
        if self._backlog.all_sent and not self.sent_finish:
            self.sent_finish = True
            finish = Finish(batches=self._sent_batches, rows=self._sent_rows)
            return [_message(RequestMetadata(finish=finish))]
        return []

    def take(self, reply: bytes) -> pa.RecordBatch | None:
        """Read a reply and return its results, if any; raise ProtocolError if the reply breaks the protocol."""
        fields = split_flight_data(reply)
        metadata = ReplyMetadata.FromString(bytes(fields.app_metadata))
        event = metadata.WhichOneof("event")
        results: pa.RecordBatch | None = None
        if event == "error":
            self.error = error_from_message(metadata.error)
        elif event == "admitted":
            self._admitted = True
        elif event == "finish":
            if (metadata.finish.batches, metadata.finish.rows) != (self._results, self._result_rows):
                raise ProtocolError(
                    f"the pool sent {metadata.finish.batches} batches of results with {metadata.finish.rows} rows, but "
                    f"{self._results} with {self._result_rows} arrived"
                )
            self.is_finished = True
        elif event == "part":
            self._take_part(metadata, fields)
        elif event == "sequence":
            results = self._take_results(metadata, fields)
        elif fields.data_header:
            message = encapsulated_message(fields.data_header, fields.data_body)
            self._result_schema = pa.ipc.read_schema(message)
        self.has_started = self.has_started or metadata.consumed > 0 or results is not None
        if not self._function.is_one_to_one:
            while self._backlog.released - self._released_before < metadata.consumed:
                self._backlog.release()
        return results

    def blamed_batch(self) -> int:
        """Return the number of the batch, counted over all exchanges, that probably killed the worker; 0 for none."""
        if self.error is not None and self.error.sequence:
            return self._released_before + self.error.sequence
        return self._backlog.released + 1 if self.has_started else 0

    def _take_part(self, metadata: ReplyMetadata, fields: FlightFields) -> None:
        if self._parts is None:
            self._parts = BatchParts(
                self._results + 1, metadata.part, limit_bytes=_MAX_REPLY_BYTES, setting="the client's limit"
            )
        self._parts.add(metadata.part, fields.data_body)

    def _take_results(self, metadata: ReplyMetadata, fields: FlightFields) -> pa.RecordBatch:
        if self._result_schema is None or metadata.sequence != self._results + 1:
            raise ProtocolError(f"results {metadata.sequence} arrived where {self._results + 1} was expected")
        if self._parts is None:
            message = encapsulated_message(fields.data_header, fields.data_body)
        else:
            message, self._parts = self._parts.completed(fields.data_header, fields.data_body), None
        results = pa.ipc.read_record_batch(pa.ipc.read_message(message), self._result_schema)
        self._results += 1
        self._result_rows += results.num_rows
        if self._function.is_one_to_one and self._backlog.release().num_rows != results.num_rows:
            raise ProtocolError(f"results {metadata.sequence} have another number of rows than their batch")
        rows = self._rows_of(results.num_rows, metadata.row_ends) if self._function.is_table_function else None
        return self._function.named(results, self._schema, rows)

    def _rows_of(self, results: int, ends: Iterable[int]) -> pa.Array:
        """Return the number of the input row of each result; `ends` lists the offsets at which rows' results end."""
        rows, start = [], 0
        for end in [*ends, results]:
            if not start <= end <= results:
                raise ProtocolError(f"a row's results end at {end}, not between {start} and {results}")
            rows += [self._row] * (end - start)
            start = end
            self._row += 1
        self._row -= 1
        return pa.array(rows, pa.int64())


def _messages_of(batch: pa.RecordBatch, sequence: int) -> Iterator[bytes]:
    message = pa.ipc.read_message(batch.serialize())
    header = memoryview(message.metadata).cast("B")
    body = memoryview(message.body).cast("B") if message.body is not None else _NOTHING
    part_bytes = PART_BYTES if len(body) > _BODY_IN_ONE_MESSAGE_BYTES else max(1, len(body))
    for part, data in parts_before_last(body, part_bytes):
        yield join_flight_data(_NOTHING, RequestMetadata(part=part).SerializeToString(), data)
    numbered = RequestMetadata(sequence=sequence).SerializeToString()
    yield join_flight_data(header, numbered, last_part(body, part_bytes))


def _message(metadata: RequestMetadata) -> bytes:
    return join_flight_data(_NOTHING, metadata.SerializeToString(), _NOTHING)
