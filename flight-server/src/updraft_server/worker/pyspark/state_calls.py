# SPDX-License-Identifier: Apache-2.0
"""Calls of a `transformWithState` processor to the state server of Spark's process, with fewer round trips.

PySpark writes a request and waits for its answer. The server reads one request after the other and answers in order. Most
requests change the state, and their answer only says that this has worked. `StateFile` collects such requests, sends
many of them at once, and reads their answers later: before it returns the answer to a request that reads the state. The
last request of a task is such a request, so the task cannot succeed before all answers have been checked.
"""

import io
import struct
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.proto import StateMessage_pb2

from updraft_server.worker.pyspark.connections import ByteStream

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Call = tuple[str, ...]
"""Names of the `method` fields of a request, from the outermost to the innermost message."""

MOST_BYTES = 8 * 1024
"""Bytes of requests that may lack an answer. The server's buffer and each socket's buffer hold as much, so sending
never waits for the server, and the server never waits for this side to read its answers, which are smaller."""

SEND_BYTES = MOST_BYTES // 2
"""Bytes of collected requests that are sent without waiting for a reason. The server works while more are collected."""

MOST_ANSWER_BYTES = 1024 * 1024
"""Size of the largest answer that can belong to a collected request. Longer ones are not the server's."""

_BUFFER_BYTES = 64 * 1024
_VERSION = 0
_HEADER = struct.Struct("!ii")
_LENGTH = struct.Struct("!i")
_SUCCESS = _LENGTH.pack(0)  # An empty StateResponse, whose status is 0.

_VARIABLE = "stateVariableRequest"
_VALUE, _LIST, _MAP = (_VARIABLE, "valueStateCall"), (_VARIABLE, "listStateCall"), (_VARIABLE, "mapStateCall")
_KEY, _TIMER = ("implicitGroupingKeyRequest",), ("statefulProcessorCall", "timerStateCall")
_START, _REMOVAL = ("statefulProcessorCall", "setHandleState"), ("statefulProcessorCall", "deleteIfExists")

PROBLEMS: Mapping[Call, str] = {
    (*_KEY, "setImplicitKey"): "Error setting implicit key",
    (*_KEY, "removeImplicitKey"): "Error removing implicit key",
    (*_TIMER, "register"): "Error register timer",
    (*_TIMER, "delete"): "Error deleting timer",
    (*_VALUE, "valueStateUpdate"): "Error updating value state",
    (*_VALUE, "clear"): "Error clearing value state",
    (*_LIST, "listStatePut"): "Error updating value state",
    (*_LIST, "appendValue"): "Error updating value state",
    (*_LIST, "appendList"): "Error updating value state",
    (*_LIST, "clear"): "Error clearing value state",
    (*_MAP, "updateValue"): "Error updating map state value",
    (*_MAP, "removeKey"): "Error removing key from map state",
    (*_MAP, "clear"): "Error clearing map state",
}
"""Requests that may be collected, with the start of PySpark's error. PySpark waits for the answer to all others."""


class StateFile(io.BufferedRWPair):
    """File of a connection to the state server, as PySpark's client uses it: write, flush, read.

    It collects requests only while their failure means that the server has ended, so that no function could have gone
    on after it: once the processor has been initialized, and until it deletes a state variable.
    """

    def __init__(self, stream: ByteStream) -> None:
        super().__init__(stream, stream, _BUFFER_BYTES)
        self._written = bytearray()  # Since the last flush.
        self._is_large = False  # Whether the start of what was written is already on its way.
        self._collected = bytearray()
        self._collected_problems: list[str] = []
        self._due: deque[str] = deque()  # Problems of the requests whose answer is on its way.
        self._sent_bytes = 0  # Since the server has last answered everything.
        self._success = b""  # Rest of an answer to a request that was collected.
        self._is_initialized = False
        self._has_removed = False
        self._failure: Exception | None = None

    def write(self, data: "ReadableBuffer", /) -> int:
        """Take bytes of a request."""
        view = memoryview(data).cast("B")
        if self._is_large:
            return super().write(view)
        self._written += view
        if len(self._written) > MOST_BYTES:
            self._send_collected()
            self._check_answers()
            super().write(self._written)
            self._written.clear()
            self._is_large = True
        return len(view)

    def flush(self) -> None:
        """Collect or send the request. Raise PySparkRuntimeError or EOFError if an earlier one has failed."""
        request, self._written = self._written, bytearray()
        if self._is_large or not request:
            self._is_large = False
            super().flush()
            return
        message = _parsed(request)
        call = () if message is None else _call(message)
        if self._may_collect(message, call):
            self._collect(request, PROBLEMS[call])
            return
        self._is_initialized |= call == _START and _initializes(message)
        self._has_removed |= call == _REMOVAL
        if not call or len(self._collected) + len(request) > MOST_BYTES:
            self._send_collected()
            self._check_answers()
        self._send_collected(request)

    def read(self, size: int | None = -1, /) -> bytes:
        """Read bytes of an answer. Raise PySparkRuntimeError or EOFError if an earlier request has failed."""
        if size == 0:
            return b""
        if self._success:
            part = self._success if size is None or size < 0 else self._success[:size]
            self._success = self._success[len(part) :]
            return part
        self._check_answers()
        return super().read(size)

    def _may_collect(self, message: "StateMessage_pb2.StateRequest | None", call: Call) -> bool:
        is_known = self._is_initialized and not self._has_removed and call in PROBLEMS
        return is_known and message is not None and _is_whole(message, call)

    def _collect(self, request: bytearray, problem: str) -> None:
        if self._failure is not None:
            raise self._failure
        if len(self._collected) + len(request) > MOST_BYTES:
            self._send_collected()
        self._collected += request
        self._collected_problems.append(problem)
        if len(self._collected) >= SEND_BYTES:
            self._send_collected()
        self._success = _SUCCESS

    def _send_collected(self, request: bytes | bytearray = b"") -> None:
        """Send the collected requests, and one whose answer PySpark reads itself."""
        if self._failure is not None:
            raise self._failure
        data = self._collected + request
        if not self._due:
            self._sent_bytes = 0
        elif self._sent_bytes + len(data) > MOST_BYTES:
            self._check_answers()
        if data:
            self._due += self._collected_problems
            self._collected, self._collected_problems = bytearray(), []
            self._sent_bytes += len(data)
            super().write(data)
            super().flush()

    def _check_answers(self) -> None:
        """Read the answers to all collected requests that were sent."""
        if self._failure is not None:
            raise self._failure
        try:
            while self._due:
                self._check_answer(self._due[0])
                self._due.popleft()
        except Exception as error:
            # The server has ended. It answers nothing after a failure, and PySpark must not wait for that.
            self._failure = error
            raise
        self._sent_bytes = 0

    def _check_answer(self, problem: str) -> None:
        (size,) = _LENGTH.unpack(self._read_exactly(_LENGTH.size))
        if not 0 <= size <= MOST_ANSWER_BYTES:
            raise PySparkRuntimeError(f"{problem}: the state server announced an answer of {size} bytes")
        if not size:
            return
        try:
            answer = StateMessage_pb2.StateResponse.FromString(self._read_exactly(size))
        except DecodeError:
            raise PySparkRuntimeError(f"{problem}: the state server's answer cannot be read") from None
        if answer.statusCode != 0:
            raise PySparkRuntimeError(f"{problem}: {answer.errorMessage}")

    def _read_exactly(self, size: int) -> bytes:
        data = super().read(size)
        if len(data) < size:
            raise EOFError
        return data


def _parsed(request: bytearray) -> "StateMessage_pb2.StateRequest | None":
    """Return the message of one whole request; None for anything else, such as a table in Arrow."""
    if len(request) < _HEADER.size:
        return None
    version, size = _HEADER.unpack_from(request)
    if version != _VERSION or size != len(request) - _HEADER.size:
        return None
    try:
        return StateMessage_pb2.StateRequest.FromString(bytes(memoryview(request)[_HEADER.size :]))
    except DecodeError:
        return None


def _call(message: "StateMessage_pb2.StateRequest") -> Call:
    names = []
    while "method" in message.DESCRIPTOR.oneofs_by_name and (name := message.WhichOneof("method")):
        names.append(name)
        message = getattr(message, name)
    return tuple(names)


def _leaf(message: "StateMessage_pb2.StateRequest", call: Call) -> "StateMessage_pb2.StateRequest":
    for name in call:
        message = getattr(message, name)
    return message


def _is_whole(message: "StateMessage_pb2.StateRequest", call: Call) -> bool:
    """Return whether the request has its rows in it. In Spark 4.0 a table in Arrow follows a request with several."""
    if call not in ((*_LIST, "listStatePut"), (*_LIST, "appendList")):
        return True
    return getattr(_leaf(message, call), "fetchWithArrow", True) is False


def _initializes(message: "StateMessage_pb2.StateRequest | None") -> bool:
    return message is not None and message.statefulProcessorCall.setHandleState.state == StateMessage_pb2.INITIALIZED
