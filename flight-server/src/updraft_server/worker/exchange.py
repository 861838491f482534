# SPDX-License-Identifier: Apache-2.0
"""Worker's side of one exchange: the state machine of proto/README.md, over frames.

The code that runs a function receives batches from `take`, and sends results with `reply`. This module handles
numbering, counting, credits and the order of messages.
"""

import contextlib
import enum
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, NoReturn

import pyarrow as pa
from google.protobuf.message import DecodeError

from updraft.arrow_decoder import ArrowDecoder
from updraft.arrow_layout import ArrowLayout, Text
from updraft.arrow_metadata import is_dictionary
from updraft.batch_parts import PART_BYTES, BatchParts, last_part, parts_before_last
from updraft.dictionary_decoder import DecodedLimit, DictionaryDecoder
from updraft.errors import InternalError, LimitError, ProtocolError, UpdraftError
from updraft.reply_checks import check_reply, check_reply_schema
from updraft.v1 import exchange_pb2
from updraft_server.ipc.assignment import Assignment
from updraft_server.ipc.frames import Buffer, FrameHeader, FrameKind
from updraft_server.ipc.load import Load
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.worker.batch_clock import BatchClock
from updraft_server.worker.channel import Channel, ReceivedFrame


class RequestBatch(NamedTuple):
    """Checked batch of a request."""

    batch: pa.RecordBatch
    group_ends: Sequence[int] = ()
    """For each group that ends in the batch, the offset of the first row after the group, in order."""
    input: int = 0
    """Side of a cogroup: 0 is left, 1 is right."""


def check_input(metadata: exchange_pb2.RequestMetadata, inputs: int) -> None:
    """Raise ProtocolError if the batch belongs to an input that the function does not have."""
    if metadata.input >= inputs:
        raise ProtocolError(
            f"batch {metadata.sequence} is of input {metadata.input}, but the function has inputs 0 to {inputs - 1}"
        )


def checked_ends(metadata: exchange_pb2.RequestMetadata, rows: int, *, takes_groups: bool) -> Sequence[int]:
    """Return the group ends of a batch that has `rows` rows; raises ProtocolError."""
    ends = list(metadata.group_ends)
    if not ends:
        return ends
    if not takes_groups:
        raise ProtocolError(f"batch {metadata.sequence} has group ends, but the function takes no groups")
    if ends[-1] > rows or any(end < before for before, end in pairwise(ends)):
        raise ProtocolError(
            f"the group ends of batch {metadata.sequence} are not offsets up to its {rows} rows in order"
        )
    return ends


_MAX_METADATA_BYTES = 64 * 1024
# Below the 4 MiB that gRPC clients accept by default. Old versions of RisingWave use that default.
_MAX_PLAIN_REPLY_BYTES = 4 * 1024 * 1024 - _MAX_METADATA_BYTES
_IPC_PREFIX_BYTES = 8

DIFFERENT_SCHEMA = "Tried to write record batch with different schema"
"""Error message of pyarrow's stream writer, which stock PySpark uses to send batches."""


class InputState(enum.Enum):
    """Progress of the client's half of the exchange."""

    OPEN = "open"
    FINISHED = "finished"  # the client's Finish arrived, with the right counts
    ENDED = "ended"  # the client has half-closed


class Exchange:
    """Protocol state of one exchange: reads the client's half and writes the worker's half."""

    def __init__(self, channel: Channel, settings: WorkerSettings) -> None:
        self._channel = channel
        self._inputs: list[ArrowDecoder | DictionaryDecoder] = []
        self._settings = settings
        self.state = InputState.OPEN
        self.plain = False
        self.failure: UpdraftError | None = None
        """First error that the worker found in input or replies; takes precedence over later errors of the function."""
        self.retires_worker = False
        """Whether the pool must replace the worker after this exchange, because the function leaves state behind."""
        self.has_accumulators: Callable[[], bool] = lambda: False
        """Returns whether the loaded function has accumulators."""
        self.consumed = 0
        """Number of the last batch that the function took."""
        self.max_reply_batch_bytes = settings.max_reply_batch_bytes
        self._max_parted_reply_bytes = 0
        self._assignment = Assignment()
        self.max_records_per_batch = 0
        self.max_records_per_reply = 0
        self.max_bytes_per_reply = settings.max_reply_batch_bytes
        self.clock = BatchClock()
        self._takes_groups = False
        self._rows_taken = 0
        self._consumed_sent = 0
        self._reply_schema: pa.Schema | None = None
        self._reply_layout = ArrowLayout(pa.schema([]), Text.BYTES)
        self._replies = 0
        self._rows_replied = 0

    def open(self, assignment: Assignment, command: ReceivedFrame) -> None:
        """Apply the front's decisions, the schema, and the client's limits that are tighter than the pool's.

        Raises ProtocolError.
        """
        self._assignment = assignment
        self.plain, limits = assignment.plain, assignment.limits
        self.clock.limit(assignment.batch_timeout_seconds, assignment.idle_timeout_seconds)
        self.max_reply_batch_bytes = _smaller(self._settings.max_reply_batch_bytes, limits.max_reply_batch_bytes)
        self._max_parted_reply_bytes = min(limits.max_reply_batch_bytes_in_parts, assignment.max_batch_bytes)
        self.max_records_per_batch = max(limits.max_records_per_batch, 0)
        self.max_records_per_reply = max(limits.max_records_per_reply, 0)
        self.max_bytes_per_reply = _smaller(self.max_reply_batch_bytes, limits.max_bytes_per_reply)
        if self.plain and not assignment.databend:
            self.max_bytes_per_reply = _smaller(self.max_bytes_per_reply, _MAX_PLAIN_REPLY_BYTES)
        if not command.header.header_bytes:
            raise ProtocolError("the first message has no Arrow schema")
        if self.plain:
            self._inputs.append(self._plain_input(command.message))
        else:
            self._add_input(command.message, "the first message")

    def _plain_input(self, schema: pa.Buffer) -> DictionaryDecoder:
        """Return the decoder for plain Flight, whose clients may send dictionaries. Spark never sends any."""
        limit = DecodedLimit(self._assignment.max_batch_bytes, self._assignment.max_batch_bytes_setting)
        return DictionaryDecoder.announced_by(
            schema, "the first message", limit=limit, max_batch_rows=self._settings.max_batch_rows, text=self._text
        )

    def _add_input(self, schema: pa.Buffer, what: str) -> None:
        max_batch_rows = self._settings.max_batch_rows
        self._inputs.append(ArrowDecoder.announced_by(schema, what, max_batch_rows=max_batch_rows, text=self._text))

    @property
    def _text(self) -> Text:
        """Encoding required of text: UTF-8 for registered functions, whose clients rely on it; any bytes for Spark."""
        return Text.UTF_8 if self._assignment.function_name else Text.BYTES

    @property
    def schema(self) -> pa.Schema:
        """Schema of the arguments."""
        return self._inputs[0].schema

    def accept_groups(self, second_input_schema: bytes) -> None:
        """Accept group ends in batches, and a second input if its schema is given; raises ProtocolError."""
        self._takes_groups = True
        if second_input_schema:
            self._add_input(pa.py_buffer(second_input_schema), "second_input_schema")

    def fail(self, error: UpdraftError) -> NoReturn:
        """Record and raise an error that the worker found. Errors that functions raise must not be recorded here."""
        self.failure = self.failure or error
        raise error

    @contextlib.contextmanager
    def loading(self, load: Load) -> Iterator[None]:
        """Let the front limit the time of the block, which loads the function. This time is not part of batch time."""
        self._channel.send(FrameKind.LOADING, load.encode())
        try:
            with self.clock.paused():
                yield
        finally:
            self._channel.send(FrameKind.LOADED)

    def take(self) -> RequestBatch | None:
        """Return the next batch, checked and valid, or None after the client's last batch. Raises UpdraftError."""
        self.clock.pause()
        batch = self._next()
        # The time limits of a batch also apply to the function's work after its last batch.
        self.clock.start()
        return batch

    def _next(self) -> RequestBatch | None:
        if self.failure is not None:
            raise self.failure
        if self.state is InputState.ENDED:
            return None
        self.acknowledge()
        try:
            return self._take()
        except UpdraftError as failure:
            self.failure = failure
            raise

    def acknowledge(self) -> None:
        """Send credit for batches taken since the last message that was sent, if any. `take` calls this method."""
        if self._consumed_sent < self.consumed:
            self.clock.pause()
            self._send_credit()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until a batch or the end of the input begins to arrive. Return False if `seconds` pass before that."""
        self.clock.pause()
        return self._channel.wait(seconds)

    @property
    def descriptor(self) -> int:
        """Descriptor that becomes readable when a batch or the end of the input begins to arrive."""
        return self._channel.descriptor

    def announce(self, schema: pa.Schema) -> None:
        """Send the schema of the replies, once, before the first reply."""
        try:
            check_reply_schema(schema)
        except UpdraftError as error:
            self.fail(error)
        self._reply_schema, self._reply_layout = schema, ArrowLayout(schema, self._text)
        header = memoryview(schema.serialize())[_IPC_PREFIX_BYTES:]
        self.clock.pause()
        metadata = exchange_pb2.ReplyMetadata(consumed=self.consumed, has_accumulators=self.has_accumulators())
        self._send(metadata, header)
        self.clock.resume()

    def reply(self, batch: pa.RecordBatch, *, sequence: int, row_ends: Sequence[int] = ()) -> None:
        """Send one batch of results; before the first batch, send its schema. Only table functions pass `row_ends`."""
        if self._reply_schema is None:
            self.announce(batch.schema)
        elif not batch.schema.equals(self._reply_schema):
            raise pa.ArrowInvalid(DIFFERENT_SCHEMA)
        try:
            check_reply(batch, self._reply_layout)
        except UpdraftError as error:
            self.fail(error)
        message = batch.serialize()
        if message.size > self.max_reply_batch_bytes:
            self._check_parted(sequence, message.size)
        self._replies += 1
        self._rows_replied += batch.num_rows
        view = memoryview(message)
        header_end = _IPC_PREFIX_BYTES + int.from_bytes(view[4:_IPC_PREFIX_BYTES], "little")
        metadata = exchange_pb2.ReplyMetadata(
            consumed=self.consumed, sequence=sequence, row_ends=row_ends, has_accumulators=self.has_accumulators()
        )
        self.clock.pause()
        rest = self._send_parts(view[header_end:]) if message.size > self.max_reply_batch_bytes else view[header_end:]
        self._send(metadata, view[_IPC_PREFIX_BYTES:header_end], rest)
        self.clock.resume()

    def _check_parted(self, sequence: int, size_bytes: int) -> None:
        if size_bytes <= self._max_parted_reply_bytes:
            return
        asked_bytes = self._assignment.limits.max_reply_batch_bytes_in_parts
        limit_bytes, setting = max(self.max_reply_batch_bytes, self._max_parted_reply_bytes), "the client's limit"
        if asked_bytes > self._assignment.max_batch_bytes:
            setting = self._assignment.max_batch_bytes_setting
        self.fail(
            LimitError(
                f"reply batch {sequence} has {size_bytes} bytes and cannot be split,"
                f" the limit is {limit_bytes}: send smaller batches, or raise {setting}"
            )
        )

    def _send_parts(self, body: memoryview) -> memoryview:
        """Send all parts of a large body but the last. Return the last part, to be sent with the batch's number."""
        # Leave room for Arrow's header, which is in the same message as the last part.
        part_bytes = min(PART_BYTES, max(1, self.max_reply_batch_bytes // 2))
        for part, data in parts_before_last(body, part_bytes):
            self._send(exchange_pb2.ReplyMetadata(consumed=self.consumed, part=part), b"", data)
        return last_part(body, part_bytes)

    def log(self, lines: list[str]) -> None:
        """Send log lines of the function to the client."""
        self._send(exchange_pb2.ReplyMetadata(consumed=self.consumed, log_lines=lines))

    def finish(self, report: exchange_pb2.Report) -> None:
        """Raise the recorded error, which the function may have caught. If there is none, send the replies' counts."""
        self.clock.stop()
        if self.failure is not None:
            raise self.failure
        counts = exchange_pb2.Finish(batches=self._replies, rows=self._rows_replied, report=report)
        if not self.plain:
            self._send(exchange_pb2.ReplyMetadata(consumed=self.consumed, finish=counts))

    def _take(self) -> RequestBatch | None:
        parts: BatchParts | None = None
        while True:
            header = self._channel.receive_header()
            if header.kind is FrameKind.END:
                self._end()
                return None
            frame = self._receive_batch_frame(header)
            metadata = self._metadata(frame)
            decoder = self._inputs[0]
            if isinstance(decoder, DictionaryDecoder) and is_dictionary(memoryview(frame.data_header)):
                decoder.add_dictionary(frame.message, sequence=metadata.sequence)
                continue
            if metadata.HasField("part"):
                parts = self._take_part(parts, metadata.part, frame)
            elif metadata.HasField("finish"):
                self._check_finish(frame, metadata.finish, parts)
            else:
                return self._take_batch(metadata, frame, parts)

    def _take_part(self, parts: BatchParts | None, part: exchange_pb2.BatchPart, frame: ReceivedFrame) -> BatchParts:
        if frame.header.header_bytes:
            raise ProtocolError(f"a part of batch {self.consumed + 1} that is not the last one has an Arrow header")
        if parts is None:
            limit_bytes, setting = self._assignment.max_batch_bytes, self._assignment.max_batch_bytes_setting
            parts = BatchParts(self.consumed + 1, part, limit_bytes=limit_bytes, setting=setting)
        parts.add(part, memoryview(frame.data_body))
        return parts

    def _take_batch(
        self, metadata: exchange_pb2.RequestMetadata, frame: ReceivedFrame, parts: BatchParts | None
    ) -> RequestBatch:
        if not frame.has_data:
            raise ProtocolError(f"batch {metadata.sequence} has no Arrow data")
        check_input(metadata, len(self._inputs))
        message = (
            frame.message
            if parts is None
            else parts.completed(memoryview(frame.data_header), memoryview(frame.data_body))
        )
        batch = self._inputs[metadata.input].decode_batch(message, sequence=metadata.sequence)
        ends = checked_ends(metadata, batch.num_rows, takes_groups=self._takes_groups)
        self.consumed = metadata.sequence
        if self.consumed == 1 and not self.plain:
            # Acknowledge the first batch at once: if the batch kills the worker, the client must know that the worker
            # had taken it. Later batches need no acknowledgement of their own, because each of them follows a reply.
            self._send_credit()
            # When the function asks for the next batch, send this credit again, because the worker then waits for the
            # client.
            self._consumed_sent = 0
        self._rows_taken += batch.num_rows
        return RequestBatch(batch, ends, metadata.input)

    def _receive_batch_frame(self, header: FrameHeader) -> ReceivedFrame:
        if header.kind is not FrameKind.BATCH:
            raise InternalError(f"the front sent {header.kind.name} where a batch was expected")
        if header.metadata_bytes > _MAX_METADATA_BYTES:
            raise LimitError(f"app_metadata has {header.metadata_bytes} bytes, the limit is {_MAX_METADATA_BYTES}")
        size_bytes = header.header_bytes + header.body_bytes
        if size_bytes > self._settings.max_message_bytes:
            raise LimitError(
                f"batch {self.consumed + 1} has {size_bytes} bytes in one message, the limit is"
                f" {self._settings.max_message_bytes}"
            )
        return self._channel.receive_fields(header)

    def _metadata(self, frame: ReceivedFrame) -> exchange_pb2.RequestMetadata:
        """Return the checked metadata of a message: the expected sequence number, a part, or the client's Finish."""
        if self.state is InputState.FINISHED:
            raise ProtocolError("a message came after finish")
        expected = self.consumed + 1
        if self.plain:
            return exchange_pb2.RequestMetadata(sequence=expected)
        try:
            metadata = exchange_pb2.RequestMetadata.FromString(frame.app_metadata)
        except DecodeError:
            raise ProtocolError(f"app_metadata of message {expected} is not a RequestMetadata") from None
        event = metadata.WhichOneof("event")
        if event not in ("sequence", "part", "finish"):
            raise ProtocolError(f"message {expected} has neither a sequence number nor finish")
        if event == "sequence" and metadata.sequence != expected:
            raise ProtocolError(f"batch {metadata.sequence} came where {expected} was expected")
        return metadata

    def _check_finish(self, frame: ReceivedFrame, finish: exchange_pb2.Finish, parts: BatchParts | None) -> None:
        if parts is not None:
            raise ProtocolError(f"finish came inside batch {self.consumed + 1}, which comes in parts")
        if frame.has_data:
            raise ProtocolError("the message with finish must have no Arrow data")
        if (finish.batches, finish.rows) != (self.consumed, self._rows_taken):
            raise ProtocolError(
                f"finish counts {finish.batches} batches and {finish.rows} rows,"
                f" but {self.consumed} and {self._rows_taken} arrived"
            )
        self.state = InputState.FINISHED

    def _end(self) -> None:
        if self.state is InputState.OPEN and not self.plain:
            raise ProtocolError(f"the client half-closed after {self.consumed} batches without finish")
        self.state = InputState.ENDED

    def _send_credit(self) -> None:
        self._send(exchange_pb2.ReplyMetadata(consumed=self.consumed))

    def _send(self, metadata: exchange_pb2.ReplyMetadata, data_header: Buffer = b"", data_body: Buffer = b"") -> None:
        # The front does not pass this metadata on to plain Flight clients.
        self._channel.send(FrameKind.MESSAGE, metadata.SerializeToString(), data_header, data_body)
        self._consumed_sent = self.consumed


def _smaller(own: int, asked: int) -> int:
    """Return the smaller of two limits; zero means no limit."""
    return min(own, asked) if own and asked > 0 else own or max(asked, 0)
