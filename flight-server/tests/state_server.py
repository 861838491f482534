# SPDX-License-Identifier: Apache-2.0
"""State server of a transformWithState query, for PySpark's client behind an exchange."""

from __future__ import annotations

import struct
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.streaming.proto import StateMessage_pb2 as messages

from updraft.errors import UpdraftError
from updraft_server.worker.exchange import RequestBatch
from updraft_server.worker.pyspark.connections import SCHEMA
from updraft_server.worker.pyspark.state_calls import Call

PORT = 4711


class StateServer:
    """State server behind an exchange. Like Spark's, it ends after its first failure and keeps the connection open."""

    max_bytes_per_reply = 0
    descriptor = -1

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.sent: list[bytes] = []
        self.most_unanswered_bytes = 0
        self.fails_at: Call | None = None
        self.says: bytes | None = None
        self.hangs_up_at: Call | None = None
        self._values: dict[tuple[bytes, ...], bytes] = {}
        self._key = b""
        self._unread = bytearray()
        self._answers = bytearray()
        self._unanswered_bytes = 0
        self._has_ended = False
        self._has_hung_up = False

    def acknowledge(self) -> None:
        """Do nothing: these tests do not wait for it."""

    def wait(self, seconds: float | None = None) -> bool:
        """Return True: answers are ready."""
        return True

    def fail(self, error: UpdraftError) -> NoReturn:
        raise error

    def reply(self, batch: pa.RecordBatch, *, sequence: int) -> None:
        data = batch.to_pylist()[0]["data"]
        if sequence == 1:
            assert data == b"%d" % PORT
            return
        self.sent.append(data)
        self._unanswered_bytes += len(data)
        self.most_unanswered_bytes = max(self.most_unanswered_bytes, self._unanswered_bytes)
        self._unread += data
        while len(self._unread) >= 8 and not self._has_ended:
            version, size = struct.unpack_from("!ii", self._unread)
            if version != 0:  # A table in Arrow, which follows a request.
                self._unread.clear()
                self._answers += bytes(4)
            elif len(self._unread) < 8 + size:
                return
            else:
                request = bytes(self._unread[8 : 8 + size])
                del self._unread[: 8 + size]
                self._serve(messages.StateRequest.FromString(request))

    def _serve(self, message: Any) -> None:
        call = call_of(message)
        self.calls.append(call)
        if call == self.hangs_up_at:
            self._has_ended = self._has_hung_up = True
        elif call == self.fails_at:
            self._has_ended = True
            failed = messages.StateResponse(statusCode=1, errorMessage="no such luck")
            self._answers += framed(failed.SerializeToString()) if self.says is None else self.says
        elif not is_followed_by_arrow(message, call):
            self._answers += framed(self._answer(message, call[-1]).SerializeToString())

    def _answer(self, message: Any, method: str) -> Any:
        request = getattr(message, message.WhichOneof("method"))
        if method == "setImplicitKey":
            self._key = request.setImplicitKey.key
        if message.WhichOneof("method") != "stateVariableRequest":
            return messages.StateResponse()
        variable = getattr(request, request.WhichOneof("method"))
        call = getattr(variable, method)
        at = self._key, variable.stateName.encode(), getattr(call, "userKey", b"")
        if method in ("valueStateUpdate", "updateValue"):
            self._values[at] = call.value
        elif method in ("clear", "removeKey"):
            self._values.pop(at, None)
        elif method in ("get", "getValue"):
            return messages.StateResponse(value=self._values.get(at, b""))
        elif method in ("exists", "containsKey") and at not in self._values:
            return messages.StateResponse(statusCode=2, errorMessage="no value")
        return messages.StateResponse()

    def take(self) -> RequestBatch | None:
        if not self._answers:
            assert self._has_hung_up, "the worker waits for an answer that never comes"
            return None
        self._unanswered_bytes = 0
        row = {"connection": 1, "data": bytes(self._answers), "read": 0}
        self._answers.clear()
        return RequestBatch(pa.RecordBatch.from_pylist([row], schema=SCHEMA))


def framed(answer: bytes) -> bytes:
    return struct.pack("!i", len(answer)) + answer


def call_of(message: Any) -> Call:
    names = []
    while "method" in message.DESCRIPTOR.oneofs_by_name:
        names.append(message.WhichOneof("method"))
        message = getattr(message, names[-1])
    return tuple(names)


def is_followed_by_arrow(message: Any, call: Call) -> bool:
    leaf = message
    for name in call:
        leaf = getattr(leaf, name)
    return call[-1] in ("listStatePut", "appendList") and getattr(leaf, "fetchWithArrow", True)
