# SPDX-License-Identifier: Apache-2.0
"""Client side of an exchange in which a writer encodes a file. `updraft.client.writer` opens the file."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, BinaryIO, Self

import grpc
import pyarrow as pa

from updraft.arrow_bytes import data_bytes
from updraft.batch_parts import PART_BYTES, last_part, parts_before_last
from updraft.errors import (
    DeadlineError,
    InternalError,
    LimitError,
    PoolUnavailableError,
    ProtocolError,
    QuotaError,
    UnauthenticatedError,
    UpdraftError,
    error_from_message,
)
from updraft.flight_data import join_flight_data, split_flight_data
from updraft.v1.exchange_pb2 import Finish, KeepAlive
from updraft.v1.write_pb2 import Abort, Ask, Pace, Receipt, WriteCommand, WriteReplyMetadata, WriteRequestMetadata

_NOTHING = memoryview(b"")
# Limit assumed until the writer reports its own limit: the default of every writer.
_MAX_MESSAGE_BYTES = 64 << 20
# Upper bound for the bytes of a message other than Arrow's header and body: numbers and their tags.
_OVERHEAD_BYTES = 1024
# Part of gRPC's error for a message that exceeds gRPC's limit, which is twice the writer's own.
_TOO_LARGE = "message larger than max"
_RAISE = "send fewer columns, or raise --max-message-bytes of the writer"
# Room for the batch that is being sent and for the next message.
_OUTBOX_MESSAGES = 2
# Statuses set by the connection or by this client, not by the writer.
_WITHOUT_ANSWER = (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
_ERROR_OF_STATUS: dict[grpc.StatusCode, type[UpdraftError]] = {
    grpc.StatusCode.UNAVAILABLE: PoolUnavailableError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: QuotaError,
}
# Interval of keepalive messages, which tell the writer that an idle client is still alive.
_KEEPALIVE_SECONDS = 30.0


class RemoteFile:
    """File that a writer encodes for this client, opened by `WriterClient.create`.

    Use it from one thread; a background thread reads the writer's replies. If a `with` block ends without an exception,
    it finishes the file; otherwise it aborts the file. Every method except `abort` can raise the errors listed in
    `updraft.client.writer`.
    """

    def __init__(
        self,
        start: Callable[[Iterator[bytes]], Any],
        command: WriteCommand,
        schema: pa.Schema,
        *,
        into: BinaryIO | None,
        max_batch_bytes: int,
    ) -> None:
        self._schema = schema
        self._into = into
        self._max_batch_bytes = max_batch_bytes
        self._changed = threading.Condition()
        self._outbox: deque[bytes] = deque([_first_message(command, schema)])
        self._closed = False
        self._finishing = False
        self._finish_sent = False
        self._ended = False
        self._synchronous = command.pace == Pace.PACE_SYNCHRONOUS
        self._credit = 0
        self._stored = 0
        self._max_message_bytes = _MAX_MESSAGE_BYTES
        self._error: UpdraftError | None = None
        self._receipt: Receipt | None = None
        self._batches = 0
        self._rows = 0
        self._received_bytes = 0
        self._user = threading.current_thread()
        self._call = start(self._requests())
        self._reader = threading.Thread(target=self._read_replies, name="updraft-writer-replies", daemon=True)
        self._reader.start()

    @property
    def receipt(self) -> Receipt:
        """Receipt of the writer, which proves that the file is complete.

        Raises:
            ValueError: The file is not finished.
        """
        if self._receipt is None:
            raise ValueError("the file is not finished: it has no receipt")
        return self._receipt

    def write(self, data: pa.RecordBatch | pa.Table) -> None:
        """Append rows.

        For each batch, wait for the writer's credit and, with a synchronous pace, until the batch is stored.

        Raises:
            ValueError: The schema of `data` differs from the file's, or the file is already finished or aborted.
            UpdraftError: The writer or the connection has ended the file. Nothing more can be written.
        """
        if not data.schema.equals(self._schema):
            raise ValueError(f"the schema has changed: the file has\n{self._schema}\nand the rows have\n{data.schema}")
        for batch in data.to_batches() if isinstance(data, pa.Table) else [data]:
            for part in _cut(batch, self._max_batch_bytes):
                self._send_batch(part)

    def finish(self) -> Receipt:
        """Tell the writer that all rows were sent, and wait for the receipt.

        Raises:
            ValueError: The file is already finished or aborted.
            UpdraftError: The file is not finished. If the writer sent the error, its message says what became of the
                file. If the connection was lost or the deadline passed, the message says that the file may have been
                published.
        """
        finish = WriteRequestMetadata(finish=Finish(batches=self._batches, rows=self._rows))
        self._post(_message(finish), last=True)
        self._reader.join()
        if self._receipt is None:
            raise self._error or ProtocolError("the exchange ended with neither receipt nor error")
        return self._receipt

    def abort(self, reason: str = "") -> None:
        """Abort the file, so that the writer publishes nothing; do nothing if the file has ended.

        This never raises an UpdraftError.

        Args:
            reason: Reason for the writer's log.
        """
        with self._changed:
            if not self._ended and not self._closed:
                self._outbox.append(_message(WriteRequestMetadata(abort=Abort(reason=reason))))
            self._closed = True
            self._changed.notify_all()
        self._reader.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort(f"{kind.__name__}: {error}")
        elif not self._closed:
            self.finish()

    def _send_batch(self, batch: pa.RecordBatch) -> None:
        message = pa.ipc.read_message(batch.serialize())
        body = memoryview(message.body).cast("B") if message.body is not None else _NOTHING
        self._post(_message(WriteRequestMetadata(ask=Ask(body_bytes=len(body)))))
        self._batches += 1
        self._rows += batch.num_rows
        self._wait(lambda: self._credit >= self._batches)
        header, limit_bytes = memoryview(message.metadata).cast("B"), self._max_message_bytes - _OVERHEAD_BYTES
        part_bytes = min(PART_BYTES, limit_bytes // 2)
        if len(header) + len(body) <= 2 * part_bytes:
            part_bytes = max(1, len(body))
        last = last_part(body, part_bytes)
        if len(header) + len(last) > limit_bytes:
            raise LimitError(
                f"batch {self._batches} has {len(header)} bytes of Arrow metadata, and a message to this writer may "
                f"have {self._max_message_bytes} bytes: {_RAISE}"
            )
        for part, data in parts_before_last(body, part_bytes):
            self._post(join_flight_data(_NOTHING, WriteRequestMetadata(part=part).SerializeToString(), data))
        numbered = WriteRequestMetadata(sequence=self._batches).SerializeToString()
        self._post(join_flight_data(header, numbered, last))
        if self._synchronous:
            self._wait(lambda: self._stored >= self._batches)

    def _post(self, message: bytes, *, last: bool = False) -> None:
        if self._closed:
            raise ValueError("the file is already finished or aborted")
        self._user = threading.current_thread()
        self._wait(lambda: len(self._outbox) < _OUTBOX_MESSAGES)
        with self._changed:
            self._outbox.append(message)
            self._closed = self._finishing = last
            self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; raise the error of the call if the call ends first."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or condition())
            if self._ended:
                raise self._error or ProtocolError("the writer ended the exchange before the file was finished")

    def _requests(self) -> Iterator[bytes]:
        while True:
            with self._changed:
                there_is_something = self._changed.wait_for(
                    lambda: self._ended or self._closed or bool(self._outbox), _KEEPALIVE_SECONDS
                )
                if there_is_something and (self._ended or not self._outbox):
                    return
                if there_is_something:
                    message = self._outbox.popleft()
                    self._finish_sent = self._finishing and not self._outbox
                else:
                    message = self._keep_alive()
                self._changed.notify_all()
            if message:
                yield message
            del message

    def _keep_alive(self) -> bytes:
        """Return a keepalive message, or b"" if the user's thread has died, so that the writer ends the file."""
        return _message(WriteRequestMetadata(keep_alive=KeepAlive())) if self._user.is_alive() else b""

    def _read_replies(self) -> None:
        error: UpdraftError | None = None
        try:
            for reply in self._call:
                self._take_reply(reply)
        except grpc.RpcError as failure:
            error = _error_of(failure, unknown=self._finish_sent and self._into is None)
        except UpdraftError as failure:
            error = failure
        # The caller's own file, `into`, failed: pass its exception on as the cause.
        except Exception as failure:
            error = InternalError(f"cannot write the returned bytes to the caller's file: {failure}")
            error.__cause__ = failure
        finally:
            self._call.cancel()
            with self._changed:
                self._error = self._error or error
                self._ended = True
                self._changed.notify_all()

    def _take_reply(self, reply: bytes) -> None:
        fields = split_flight_data(reply)
        metadata = WriteReplyMetadata.FromString(bytes(fields.app_metadata))
        match metadata.WhichOneof("event"):
            case "offset":
                self._keep(metadata.offset, fields.data_body)
            case "receipt":
                if self._into is not None and metadata.receipt.file_bytes != self._received_bytes:
                    raise ProtocolError("parts of the returned file are missing")
                self._receipt = metadata.receipt
            case "error":
                self._error = error_from_message(metadata.error)
        with self._changed:
            self._credit = metadata.credit
            self._stored = metadata.stored
            self._max_message_bytes = metadata.max_message_bytes or self._max_message_bytes
            self._changed.notify_all()

    def _keep(self, offset: int, piece: memoryview) -> None:
        if self._into is None or offset != self._received_bytes:
            raise ProtocolError(f"bytes at {offset} came where {self._received_bytes} was expected")
        self._into.write(piece)
        self._received_bytes += len(piece)


def _first_message(command: WriteCommand, schema: pa.Schema) -> bytes:
    from pyarrow import flight

    header = memoryview(pa.ipc.read_message(schema.serialize()).metadata).cast("B")
    descriptor = flight.FlightDescriptor.for_command(command.SerializeToString())
    return join_flight_data(header, b"", _NOTHING, descriptor=bytes(descriptor.serialize()))


def _message(metadata: WriteRequestMetadata) -> bytes:
    return join_flight_data(_NOTHING, metadata.SerializeToString(), _NOTHING)


def _cut(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of the batch of about `max_bytes` each; a single row may be larger."""
    slices = max(1, -(-data_bytes(batch) // max_bytes))
    rows = max(1, -(-batch.num_rows // slices))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _error_of(failure: Any, *, unknown: bool) -> UpdraftError:
    """Return the error for a call that ended without an in-band error.

    `unknown` says that the writer may have published the file.
    """
    code, message = failure.code(), failure.details() or ""
    if unknown and code in _WITHOUT_ANSWER:
        message += "; the writer was told to finish the file: whether it published the file is not known"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in message:
        return LimitError(f"{message}: {_RAISE}")
    error = _ERROR_OF_STATUS.get(code)
    return error(message) if error else InternalError(f"{code.name}: {message}")
