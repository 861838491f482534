# SPDX-License-Identifier: Apache-2.0
"""Exchanges of an owner with a pool that requires a token. Each exchange sends one batch at a time."""

from __future__ import annotations

import hashlib
import queue
from collections.abc import Callable, Mapping
from typing import Any, Self

import grpc
import pyarrow as pa
from google.protobuf.message import DecodeError
from pyspark.sql.types import StringType
from session_commands import scalar_arrow

from tests.support.flight import FlightData, finishing, first_message, ipc_parts, numbered
from updraft.v1.exchange_pb2 import Artifact, ArtifactPart, ExchangeCommand, KeepAlive, ReplyMetadata, RequestMetadata

DO_EXCHANGE = "/arrow.flight.protocol.FlightService/DoExchange"
# Timeout of a whole exchange. It is long, because the victim's exchange lasts as long as its pool.
_TIMEOUT_SECONDS = 1800
_ROW = pa.record_batch({"_0": pa.array([1], pa.int64())})


class BrokenExchangeError(Exception):
    """Raised if an honest client would not accept an exchange as finished; the message gives the reason."""


class Exchange:
    """Exchange of one session function, called row by row; a context manager that finishes the exchange."""

    schema = _ROW.schema
    """Schema of the batches that the client sends."""

    def __init__(
        self,
        channel: grpc.Channel,
        token: str,
        application: str,
        function: Callable[[Any], Any],
        broadcasts: Mapping[int, bytes] | None = None,
    ) -> None:
        self._artifacts = {hashlib.sha256(data).digest(): data for data in (broadcasts or {}).values()}
        listed = [
            Artifact(sha256=hashlib.sha256(data).digest(), size_bytes=len(data), broadcast_id=number)
            for number, data in (broadcasts or {}).items()
        ]
        command = self._command(function, listed)
        command.task.owner.application_id = application
        (schema,) = ipc_parts(self.schema, [])
        self._asked = 0
        self._schema = b""
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._requests.put(first_message(command, schema[0]))
        call = channel.stream_stream(
            DO_EXCHANGE,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=FlightData.FromString,
        )
        self._replies = call(
            iter(self._requests.get, None), metadata=[("authorization", f"Bearer {token}")], timeout=_TIMEOUT_SECONDS
        )
        self._next("admitted")

    def _command(self, function: Callable[[Any], Any], artifacts: Any) -> ExchangeCommand:
        return scalar_arrow(function, StringType(), artifacts=artifacts)

    def ask(self) -> str:
        """Send one more row and return the function's answer; raise BrokenExchangeError."""
        self._asked += 1
        (_, row) = ipc_parts(_ROW.schema, [_ROW])
        self._requests.put(numbered(*row, self._asked))
        return str(self._batch(self._next("sequence")).column(0)[0].as_py())

    def keep_alive(self) -> None:
        """Send a keepalive."""
        self._requests.put(FlightData(app_metadata=RequestMetadata(keep_alive=KeepAlive()).SerializeToString()))

    def finish(self) -> None:
        """End the exchange; raises BrokenExchangeError."""
        self._requests.put(finishing(self._asked, self._asked))
        self._end()

    def _end(self) -> None:
        self._requests.put(None)
        self._next("finish")
        # Read until the end, because a cancellation now would make the pool replace the worker.
        try:
            if next(self._replies, None) is not None:
                raise BrokenExchangeError("a message came after finish")
        except grpc.RpcError as error:
            raise BrokenExchangeError(str(error)) from error

    def cancel(self) -> None:
        """Cancel the exchange."""
        self._replies.cancel()
        self._requests.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.cancel()

    def _next(self, wanted: str) -> Any:
        """Return the next message of this kind. Until then, send the artifacts that the pool asks for."""
        while True:
            try:
                message = next(self._replies)
                metadata = ReplyMetadata.FromString(message.app_metadata)
            except StopIteration:
                raise BrokenExchangeError(f"it ended before {wanted}") from None
            except (grpc.RpcError, DecodeError) as error:
                raise BrokenExchangeError(str(error)) from error
            event = metadata.WhichOneof("event")
            if event == wanted:
                return message
            if event == "part":
                raise BrokenExchangeError("a reply came in parts, which nobody has asked for")
            if event == "artifacts_wanted":
                self._send(metadata.artifacts_wanted.sha256)
            elif message.data_header:
                self._schema = message.data_header

    def _send(self, digests: Any) -> None:
        for digest in digests:
            part = RequestMetadata(artifact=ArtifactPart(sha256=digest)).SerializeToString()
            self._requests.put(FlightData(app_metadata=part, data_body=self._artifacts[digest]))

    def _batch(self, message: Any) -> pa.RecordBatch:
        pieces = ((self._schema, b""), (message.data_header, message.data_body))
        stream = b"".join(b"\xff\xff\xff\xff" + len(head).to_bytes(4, "little") + head + body for head, body in pieces)
        return next(iter(pa.ipc.open_stream(pa.py_buffer(stream))))
