# SPDX-License-Identifier: Apache-2.0
"""Worker's end of a connection to a model process: sends one batch at a time and receives its result or error.

A model process that sends GOODBYE has answered every batch that it ran. The client then sends its unanswered batch to
another process.

If a process dies and the function is deterministic, the client sends the batch to another process, which runs it alone.
If that process dies too, the batch is to blame. If the function is not deterministic, the batch fails at the first
death. In that case, the batch is to blame if the process was running no other rows when the process died.
"""

import contextlib
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pyarrow as pa

from updraft.arrow_decoder import ArrowDecoder
from updraft.errors import FunctionLoadError, InternalError, UpdraftError, WorkerError, error_from_message
from updraft.v1 import exchange_pb2
from updraft_server.ipc.frames import after
from updraft_server.worker.model import channel as packets
from updraft_server.worker.model import messages
from updraft_server.worker.model.function import BatchedFunction

# A batch fails after more process deaths than this, even if none of the processes had begun to run the batch.
_MOST_DEATHS = 5


class _ConnectionLostError(Exception):
    """Raised when the model process has ended without a goodbye."""


class SuspectError(WorkerError, kind=WorkerError.kind, code=WorkerError.code):
    """Raised when a model process died while it ran only rows of this exchange."""


class ModelClient:
    """Client that calls one batched function on behalf of one exchange."""

    def __init__(
        self,
        function: BatchedFunction,
        model_channel: packets.ModelChannel,
        *,
        max_batch_rows: int,
        waiting: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """Create a client that is not connected yet.

        Args:
            function: Function to call.
            model_channel: Channel to the zygote.
            max_batch_rows: Most rows that a result may have.
            waiting: Returns a context that the client enters while it waits for a connection. A process may first have
                to load the function, and the wait does not count as batch time.
        """
        self._function = function
        self._waiting = waiting
        self._model_channel = model_channel
        self._decoder = ArrowDecoder(function.result_schema, max_batch_rows=max_batch_rows)
        self._socket: socket.socket | None = None
        self._replica = ""

    def connect(self) -> None:
        """Connect before the first call, so that the model waits for this exchange's rows too; raises UpdraftError."""
        if self._socket is None:
            self._connect()

    def call(self, batch: pa.RecordBatch, *, sequence: int) -> pa.RecordBatch:
        """Return the results of a batch with at least one row; raises UpdraftError."""
        payload = batch.serialize()
        deaths = 0
        while True:
            kind = messages.MessageKind.SUSPECT_ROWS if deaths else messages.MessageKind.ROWS
            connection = self._socket or self._connect()
            was_started = False
            try:
                self._send(connection, kind, sequence, payload)
                message, answer = self._receive(connection)
                while message.kind in (messages.MessageKind.STARTED, messages.MessageKind.JOINED):
                    was_started = message.kind is messages.MessageKind.STARTED
                    message, answer = self._receive(connection)
            except (_ConnectionLostError, messages.MessageError):
                how = self._fate()
                deaths += 1
                if was_started or not self._function.is_deterministic or deaths > _MOST_DEATHS:
                    error_class = SuspectError if was_started else WorkerError
                    raise error_class(
                        f"the model process of function {self._function.name!r} {how}, and its rows are lost: another"
                        " process replaces it"
                    ) from None
                continue
            if message.kind is messages.MessageKind.GOODBYE:
                self.close()
                continue
            return self._taken(message, answer, batch.num_rows)

    def close(self) -> None:
        """Close the connection; the next call opens a new connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _taken(self, message: messages.Message, answer: pa.Buffer, rows: int) -> pa.RecordBatch:
        match message.kind:
            case messages.MessageKind.RESULT:
                results = self._result(message, answer)
                if results.num_rows == rows:
                    return results
            case messages.MessageKind.FAILED:
                raise error_from_message(exchange_pb2.Error.FromString(answer.to_pybytes()))
        raise InternalError(
            f"the model process of function {self._function.name!r} did not answer {rows} rows with as many results"
        )

    def _result(self, message: messages.Message, answer: pa.Buffer) -> pa.RecordBatch:
        try:
            return self._decoder.decode_batch(answer, sequence=message.sequence)
        except UpdraftError as error:
            # The client of the exchange is not to blame: the model has probably overwritten memory of its own process.
            raise WorkerError(
                f"the model process of function {self._function.name!r} returned no batch: {error.message}"
            ) from None

    def _connect(self) -> socket.socket:
        name, version = self._function.name, self._function.version
        try:
            with self._waiting():
                answer, connection = self._model_channel.ask(packets.Connect(name, version))
        except packets.ModelChannelError as error:
            raise WorkerError(f"cannot reach the model process of function {name!r}: {error}") from None
        match answer:
            case packets.Connected(replica) if connection is not None:
                self._socket, self._replica = connection, replica
                return connection
            case packets.Refused(reason, may_retry):
                error_class = WorkerError if may_retry else FunctionLoadError
                raise error_class(f"function {name!r} {reason}")
        raise InternalError(f"the zygote answered {type(answer).__name__} to a worker that asked for a connection")

    def _fate(self) -> str:
        """Close the connection and return how the process at its other end ended."""
        self.close()
        with contextlib.suppress(packets.ModelChannelError):
            answer, _ = self._model_channel.ask(packets.AskFate(self._replica))
            if isinstance(answer, packets.Fate):
                return answer.how
        return "has gone away"

    def _send(self, connection: socket.socket, kind: messages.MessageKind, sequence: int, payload: pa.Buffer) -> None:
        header = messages.encode_header(kind, sequence, time.monotonic(), payload.size)
        pieces = [memoryview(header), memoryview(payload).cast("B")]
        try:
            while pieces:
                pieces = after(pieces, connection.sendmsg(pieces))
        except OSError:
            # Ignore the error, because the process's last message may still be readable. The caller reads it next. If
            # that message is GOODBYE, the process has not run this batch.
            return

    def _receive(self, connection: socket.socket) -> tuple[messages.Message, pa.Buffer]:
        header = bytearray(messages.HEADER_BYTES)
        _fill(connection, memoryview(header))
        message = messages.decode_header(header)
        payload = pa.allocate_buffer(message.payload_bytes)
        _fill(connection, memoryview(payload).cast("B"))
        return message, payload


def _fill(connection: socket.socket, view: memoryview) -> None:
    received = 0
    while received < view.nbytes:
        try:
            count = connection.recv_into(view[received:], 0, socket.MSG_WAITALL)
        except OSError:
            raise _ConnectionLostError from None
        if not count:
            raise _ConnectionLostError
        received += count
