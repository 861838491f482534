# SPDX-License-Identifier: Apache-2.0
"""Exchange that a test leads step by step, and the functions that it runs."""

from __future__ import annotations

import hashlib
import itertools
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import pyarrow as pa
from pyspark.sql.types import StringType
from session_commands import scalar_arrow

import tests.support.spark  # noqa: F401  functions of the tests travel whole
from tests.support.flight import FlightData, Reply, finishing, first_message, ipc_parts, numbered
from tests.support.waiting import HANG_SECONDS, until
from updraft.v1.exchange_pb2 import Artifact, ArtifactPart, Limits, ReplyMetadata, RequestMetadata

_DO_EXCHANGE = "/arrow.flight.protocol.FlightService/DoExchange"
_ROW = pa.record_batch({"_0": pa.array([1], pa.int64())})
_tasks = itertools.count(1)
_PART_BYTES = 1 << 20
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Call:
    """Session function over batches of one row; replies are collected in the background."""

    def __init__(
        self,
        address: str,
        function: Callable[[Any], Any],
        *,
        artifacts: Mapping[str, bytes] | None = None,
        digests: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
        timeout_seconds: float | None = HANG_SECONDS,
        is_lasting: bool = True,
    ) -> None:
        """Open the call.

        `artifacts` maps names of directories to archives; `digests` overrides their announced digests. Without
        `is_lasting`, the owner has no application and never returns, so the pool removes what the function leaves
        together with its worker.
        """
        self.reply = Reply()
        self._kinds: list[str | None] = []
        self._may_read = threading.Event()
        self._may_read.set()
        self._may_upload = threading.Event()
        self._may_upload.set()
        self._asked = 0
        self._artifacts: dict[bytes, bytes] = {}
        listed = []
        for name, data in (artifacts or {}).items():
            digest = (digests or {}).get(name) or hashlib.sha256(data).digest()
            self._artifacts[digest] = data
            listed.append(Artifact(sha256=digest, size_bytes=len(data), directory_name=name))
        schema, self._row = ipc_parts(_ROW.schema, [_ROW])
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        command = scalar_arrow(function, StringType(), artifacts=listed, limits=limits)
        # Give each call its own task, because exchanges of one task may use extra workers.
        command.task.task_attempt_id = next(_tasks)
        if not is_lasting:
            command.task.owner.application_id = ""
        self._requests.put(first_message(command, schema[0]))
        self._channel = grpc.insecure_channel(address, options=_UNLIMITED)
        open_call = self._channel.stream_stream(
            _DO_EXCHANGE,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=FlightData.FromString,
        )
        self._call = open_call(iter(self._requests.get, None), timeout=timeout_seconds)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def is_over(self) -> bool:
        """Whether the call has ended with a status."""
        return not self._reader.is_alive()

    def has(self, kind: str) -> bool:
        """Return whether a reply of this kind has arrived or the call has ended."""
        return kind in self._kinds or self.is_over

    def wait_for(self, kind: str) -> None:
        """Wait until a reply of this kind has arrived or the call has ended."""
        until(f"the pool sends {kind}", lambda: self.has(kind))

    def send(self) -> None:
        """Send one more batch."""
        self._asked += 1
        self._requests.put(numbered(*self._row, self._asked))

    def stop_reading(self) -> None:
        """Read no more replies until the test finishes or cancels the call."""
        self._may_read.clear()

    def hold_uploads(self) -> None:
        """Send one part of every artifact that the pool asks for. Send the other parts only when the call ends."""
        self._may_upload.clear()

    def cancel(self) -> None:
        """Cancel the call."""
        self._call.cancel()
        self._go_on()

    def finish(self) -> grpc.StatusCode:
        """Finish the call if it is still open; return the status with which it ends."""
        self._go_on()
        # The pool asks for the artifacts before it admits the call.
        self.wait_for("admitted")
        self._requests.put(finishing(self._asked, self._asked))
        self._requests.put(None)
        return self.ended()

    def ended(self) -> grpc.StatusCode:
        """Wait until the call ends; return its status."""
        self._go_on()
        self._reader.join(2 * HANG_SECONDS)
        assert self.is_over, "the call hangs"
        self._requests.put(None)
        self._channel.close()
        return self.reply.code

    def answers(self) -> list[str]:
        """Return the function's answer to each row."""
        return [str(value) for batch in self.reply.batches() for value in batch.column(0).to_pylist()]

    def _go_on(self) -> None:
        self._may_read.set()
        self._may_upload.set()

    def _read(self) -> None:
        try:
            for message in self._call:
                kind = ReplyMetadata.FromString(message.app_metadata).WhichOneof("event")
                if kind == "artifacts_wanted":
                    wanted = ReplyMetadata.FromString(message.app_metadata).artifacts_wanted.sha256
                    threading.Thread(target=self._upload, args=(list(wanted),), daemon=True).start()
                self.reply.messages.append(message)
                self._kinds.append(kind)
                self._may_read.wait()
        except grpc.RpcError as error:
            self.reply.code, self.reply.details = error.code(), error.details() or ""

    def _upload(self, wanted: list[bytes]) -> None:
        for digest in wanted:
            data = self._artifacts[digest]
            for offset in range(0, len(data), _PART_BYTES):
                part = RequestMetadata(artifact=ArtifactPart(sha256=digest, offset=offset)).SerializeToString()
                self._requests.put(FlightData(app_metadata=part, data_body=data[offset : offset + _PART_BYTES]))
                self._may_upload.wait()
