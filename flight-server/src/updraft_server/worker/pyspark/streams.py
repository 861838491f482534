# SPDX-License-Identifier: Apache-2.0
"""Streams that PySpark's worker uses instead of its socket, for functions over Arrow batches, with or without groups.

PySpark's Arrow serializers read and write batches through `ArrowStreamSerializer.load_stream` and `.dump_stream`.
`install` replaces these two methods. Given an `ArrowStream`, the new methods pass its validated record batches through
without copying them; given any other stream, they call PySpark's methods. The init message and the trailer still pass
as bytes, through the `read` and `write` of the `ArrowStream`.
"""

import functools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.serializers import SpecialLengths

from updraft.errors import ProtocolError, UserError
from updraft.v1.exchange_pb2 import SessionPayload
from updraft_server.ipc.frames import Buffer
from updraft_server.worker import replies as forms
from updraft_server.worker.exchange import DIFFERENT_SCHEMA, Exchange
from updraft_server.worker.pyspark.group_readers import AnsweredRequests, CogroupReader, Group, GroupReader, as_batches
from updraft_server.worker.pyspark.kinds import Kind, Reads, ReplyForm
from updraft_server.worker.pyspark.pickled_stream import PickledStream, PickledTableStream
from updraft_server.worker.pyspark.readable_columns import ReadableColumns
from updraft_server.worker.pyspark.wire import INT, WorkerInput

# PySpark's worker reads this mark after its data, and then knows that Spark has finished too.
LAST_MARK = INT.pack(SpecialLengths.END_OF_STREAM)


class ArrowStream(WorkerInput):
    """Input and output file of PySpark's worker for one exchange."""

    def __init__(self, replies: forms.Replies, batches: Iterable[pa.RecordBatch]) -> None:
        super().__init__([LAST_MARK])
        self._replies = replies
        self._batches = batches
        self.trailer = bytearray()

    def write(self, data: Buffer) -> int:
        """Add bytes to the trailer. Batches do not pass through this method."""
        self.trailer += data
        return len(data)

    def flush(self) -> None:
        """Send the results that are held back."""
        self._replies.flush()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the batches of arguments for PySpark's worker."""
        return iter(self._batches)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch of results."""
        self._replies.add(batch)

    def close(self) -> None:
        """Finish the replies; raises UserError if the function has returned a wrong number of rows."""
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


_NO_MORE_GROUPS = INT.pack(0)


class GroupedStream(ArrowStream):
    """Input and output file of PySpark's worker for one exchange of groups."""

    def __init__(self, replies: forms.Replies, groups: Iterable[Group]) -> None:
        super().__init__(replies, ())
        self._tables: deque[Iterable[pa.RecordBatch]] = deque()
        self._pieces = self._count_tables(groups)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the slices of the next table of the group."""
        return iter(self._tables.popleft())

    def _count_tables(self, groups: Iterable[Group]) -> Iterator[bytes]:
        for tables in groups:
            self._tables.extend(tables)
            yield INT.pack(len(tables))
            # Drop the tables that the function has not read.
            self._tables.clear()
        yield _NO_MORE_GROUPS
        yield LAST_MARK


class MapReplies(forms.FreeRunningReplies):
    """Free-running replies that convert columns to types that Spark reads (`readable_columns`)."""

    def __init__(self, exchange: forms.ReplyChannel) -> None:
        super().__init__(exchange)
        self._columns: ReadableColumns | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Send a batch, in parts if need be; raises UpdraftError."""
        columns = self._columns = self._columns or ReadableColumns(batch.schema)
        super().add(batch if columns.changes_nothing else self._readable(batch, columns))

    def _readable(self, batch: pa.RecordBatch, columns: ReadableColumns) -> pa.RecordBatch:
        # Compare the schemas before the conversion, which may make different schemas equal.
        if not batch.schema.equals(columns.schema):
            raise pa.ArrowInvalid(DIFFERENT_SCHEMA)
        try:
            return columns.convert(batch)
        except UserError as error:
            self._exchange.fail(error)


SessionStream: TypeAlias = ArrowStream | PickledStream | PickledTableStream


def session_stream(kind: Kind, payload: SessionPayload, exchange: Exchange) -> SessionStream:
    """Return the stream for one exchange; raises ProtocolError if the client's command does not fit the kind."""
    if bool(payload.second_input_schema) is not (kind.reads is Reads.COGROUPS):
        raise ProtocolError("cogroups need second_input_schema, and other functions must not have it")
    if payload.HasField("udtf") is not (kind.answers is ReplyForm.OUTPUTS):
        raise ProtocolError("table functions need udtf, and other functions must not have it")
    udfs = payload.udfs
    if kind.answers is not ReplyForm.OUTPUTS and not (udfs and all(udf.commands for udf in udfs)):
        raise ProtocolError("the command's payload has no UDF, or a UDF without a function")
    if kind.reads is Reads.PICKLED_LISTS:
        return PickledTableStream(exchange) if kind.answers is ReplyForm.OUTPUTS else PickledStream(exchange)
    if kind.reads is not Reads.BATCHES:
        exchange.accept_groups(payload.second_input_schema)
    replies = _replies(kind, payload, exchange)
    source = AnsweredRequests(exchange, replies, kind.answers)
    match kind.reads:
        case Reads.BATCHES:
            return ArrowStream(replies, source.slices())
        case Reads.GROUP_BATCHES:
            return ArrowStream(replies, as_batches(GroupReader(source)))
        case Reads.COGROUPS:
            return GroupedStream(replies, CogroupReader(source))
        case _:
            return GroupedStream(replies, GroupReader(source))


def _replies(kind: Kind, payload: SessionPayload, exchange: Exchange) -> forms.Replies:
    match kind.answers:
        case ReplyForm.FREELY if kind.reads is Reads.BATCHES:
            return MapReplies(exchange)
        case ReplyForm.FREELY:
            return forms.JoinedReplies(exchange)
        case ReplyForm.OUTPUTS:
            return forms.OutputReplies(exchange) if payload.udtf.joined else forms.JoinedReplies(exchange)
        case ReplyForm.PER_ROW:
            return forms.OneToOneReplies(exchange)
        case ReplyForm.PER_GROUP:
            return forms.OneToOneReplies(exchange, ahead=1)
