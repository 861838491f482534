# SPDX-License-Identifier: Apache-2.0
"""Calls of a `transformWithState` processor to the state server of Spark's process, with fewer round trips.

PySpark writes a request and waits for its answer. The server reads one request after the other and answers in order.
Most requests change the state, and their answers only confirm the change. `StateFile` collects these requests, sends
many of them at once, and checks their answers before it returns the answer to a request of any other kind. The last
request of a task is of another kind, so the task cannot succeed before all answers have been checked.

Processors repeat the same sequences of reads: `exists` and then `get`, say, or `containsKey` and then `getValue` with
the same key. Together with a read, `StateFile` sends the reads that followed it the last time, which saves their round
trips. If the processor does something else, `StateFile` drops the answers to these reads.
"""

import io
import struct
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import DecodeError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.proto import StateMessage_pb2

from updraft_server.worker.pyspark.connections import ByteStream

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Call = tuple[str, ...]
"""Names of the `method` fields of a request, from the outermost to the innermost message."""

MOST_BYTES = 8 * 1024
"""Maximum size of all unanswered requests. The server's buffer and each socket's buffer are at least as large, so
sending never waits for the server."""

SEND_BYTES = MOST_BYTES // 2
"""Size at which collected requests are sent, so that the server works while `StateFile` collects more."""

MOST_ANSWER_BYTES = 1024 * 1024
"""Size of the largest answer to a collected request, which may contain the text of an error."""

MOST_AHEAD = 8
"""Maximum number of reads that are sent ahead together with a read."""

_BUFFER_BYTES = 64 * 1024
_VERSION = 0
_HEADER = struct.Struct("!ii")
_LENGTH = struct.Struct("!i")
_SUCCESS = _LENGTH.pack(0)  # An empty StateResponse, whose status is 0.
_NO_VALUE = 2  # Status of `exists` if there is no value.

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
"""Requests that may be collected, each with the start of PySpark's error message if the request fails."""

_READS = ((*_VALUE, "exists"), (*_VALUE, "get"), (*_MAP, "containsKey"), (*_MAP, "getValue"))
_UNUSED = "Error reading state ahead"


class StateFile(io.BufferedRWPair):
    """File of a connection to the state server, as PySpark's client uses it: write, flush, read.

    Until the processor is initialized, and after it deletes a state variable, every call waits for its answer: in these
    phases, the server continues after some failures.
    """

    def __init__(self, stream: ByteStream) -> None:
        super().__init__(stream, stream, _BUFFER_BYTES)
        self._written = bytearray()  # Bytes of the request since the last flush.
        self._is_large = False  # Whether the request is so large that its start has already been sent.
        self._collected = bytearray()
        self._collected_problems: list[str] = []
        self._due: deque[str] = deque()  # For each answer that PySpark will not read, the start of its error message.
        self._ahead: deque[bytes] = deque()  # Reads that were sent ahead. Their answers follow the answers in `_due`.
        self._sent_bytes = 0  # Bytes sent since the answers in `_due` were last checked.
        self._success = b""  # Unread rest of the answer that PySpark reads for a collected request.
        self._reads = _ReadOrder()
        self._is_initialized = False
        self._has_removed = False
        self._failure: Exception | None = None

    def write(self, data: "ReadableBuffer", /) -> int:
        """Keep bytes of a request until the flush, or send them at once if the request is large."""
        view = memoryview(data).cast("B")
        if self._is_large:
            return super().write(view)
        self._written += view
        if len(self._written) > MOST_BYTES:
            self._reads.interrupt()
            self._settle()
            super().write(self._written)
            self._written.clear()
            self._is_large = True
        return len(view)

    def flush(self) -> None:
        """Collect or send the request. Raise PySparkRuntimeError or EOFError if an earlier request has failed."""
        request, self._written = bytes(self._written), bytearray()
        if self._is_large or not request:
            self._is_large = False
            super().flush()
            return
        message = _parsed(request)
        if message is None:
            # The bytes are not a known request. They may be anything, such as a table in Arrow.
            self._reads.interrupt()
            self._settle()
            self._send(request)
            return
        call, innermost = _call(message)
        is_free = self._is_initialized and not self._has_removed
        if is_free and call in PROBLEMS and _has_rows(innermost):
            self._reads.interrupt()
            self._collect(request, PROBLEMS[call])
        elif is_free and call in _READS:
            self._read(request, _Read.of(message, call))
        else:
            self._reads.interrupt()
            if call in PROBLEMS:
                # The rows of a list may follow the request. The server answers nothing before it has received them.
                self._settle()
            self._is_initialized |= call == _START and innermost.state == StateMessage_pb2.INITIALIZED
            self._has_removed |= call == _REMOVAL
            self._send(request)

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

    def _collect(self, request: bytes, problem: str) -> None:
        self._raise_failure()
        self._drop_ahead()
        if len(self._collected) + len(request) > MOST_BYTES:
            self._send(b"")
        self._collected += request
        self._collected_problems.append(problem)
        if len(self._collected) >= SEND_BYTES:
            self._send(b"")
        self._success = _SUCCESS

    def _read(self, request: bytes, read: "_Read") -> None:
        self._raise_failure()
        self._reads.add(read)
        if self._ahead and self._ahead[0] == request:
            self._ahead.popleft()
            return
        following = [each.encode() for each in self._reads.after(read)]
        if sum(map(len, following)) > SEND_BYTES - len(request):
            following = []
        self._send(request, following)
        self._ahead += following

    def _settle(self) -> None:
        """Send the collected requests and wait until the server has answered all requests."""
        self._send(b"")
        self._check_answers()

    def _send(self, request: bytes, following: Sequence[bytes] = ()) -> None:
        """Send the collected requests, then `request`, whose answer PySpark reads, then the reads `following` ahead."""
        self._raise_failure()
        self._drop_ahead()
        own = request + b"".join(following)
        if own and len(self._collected) + len(own) > MOST_BYTES:
            self._send(b"")
        data = bytes(self._collected) + own
        if not self._due or self._sent_bytes + len(data) > MOST_BYTES:
            self._check_answers()
            self._sent_bytes = 0
        if data:
            self._due += self._collected_problems
            self._collected, self._collected_problems = bytearray(), []
            self._sent_bytes += len(data)
            super().write(data)
            super().flush()

    def _drop_ahead(self) -> None:
        self._due += [_UNUSED] * len(self._ahead)
        self._ahead.clear()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            # Otherwise, each raise would lengthen the traceback and keep more frames alive.
            raise self._failure.with_traceback(None)

    def _check_answers(self) -> None:
        """Read all answers that PySpark does not read."""
        self._raise_failure()
        try:
            while self._due:
                self._check_answer(self._due[0])
                self._due.popleft()
        except Exception as error:
            # Keep the error for later calls: after a failure the server answers nothing, so PySpark must not wait.
            self._failure = error
            raise

    def _check_answer(self, problem: str) -> None:
        (size,) = _LENGTH.unpack(self._read_exactly(_LENGTH.size))
        if size > MOST_ANSWER_BYTES and problem == _UNUSED:
            # Skip a value that the processor does not need, because it may be larger than the worker's memory.
            self._skip(size)
            self._reads = _ReadOrder()
            return
        if not 0 <= size <= MOST_ANSWER_BYTES:
            raise PySparkRuntimeError(f"{problem}: the state server announced an answer of {size} bytes")
        try:
            answer = StateMessage_pb2.StateResponse.FromString(self._read_exactly(size))
        except DecodeError:
            raise PySparkRuntimeError(f"{problem}: the state server's answer cannot be read") from None
        if answer.statusCode != 0 and (problem, answer.statusCode) != (_UNUSED, _NO_VALUE):
            raise PySparkRuntimeError(f"{problem}: {answer.errorMessage}")

    def _skip(self, size: int) -> None:
        while size:
            size -= len(self._read_exactly(min(size, _BUFFER_BYTES)))

    def _read_exactly(self, size: int) -> bytes:
        data = super().read(size) if size else b""
        if len(data) < size:
            raise EOFError
        return data


class _Read(NamedTuple):
    """Read of a value, or of one key of a map."""

    call: Call
    variable: str
    key: bytes
    """Key in the map; empty for a value."""

    @classmethod
    def of(cls, message: Any, call: Call) -> "_Read":
        """Return the read that a request asks for."""
        variable = getattr(message.stateVariableRequest, call[1])
        return cls(call, variable.stateName, getattr(getattr(variable, call[2]), "userKey", b""))

    def encode(self) -> bytes:
        """Return the request as PySpark's client writes it."""
        message = StateMessage_pb2.StateRequest()
        variable = getattr(message.stateVariableRequest, self.call[1])
        variable.stateName = self.variable
        method = getattr(variable, self.call[2])
        method.SetInParent()
        if self.key:
            method.userKey = self.key
        data = message.SerializeToString()
        return _HEADER.pack(_VERSION, len(data)) + data


class _ReadOrder:
    """Record of which read followed each read the last time, with no other request between the two."""

    def __init__(self) -> None:
        self._next: dict[tuple[Call, str], tuple[Call, str]] = {}
        self._last: _Read | None = None

    def add(self, read: _Read) -> None:
        """Record a read."""
        last = self._last
        if last is None or read.key not in (last.key, b""):
            self.interrupt()
        else:
            self._next[last[:2]] = read[:2]
        self._last = read

    def interrupt(self) -> None:
        """Record that no related read follows the last read."""
        if self._last is not None:
            self._next.pop(self._last[:2], None)
        self._last = None

    def after(self, read: _Read) -> Iterator[_Read]:
        """Yield the reads that should follow, each of them once."""
        seen = [read[:2]]
        while len(seen) <= MOST_AHEAD:
            following = self._next.get(seen[-1])
            if following is None or following in seen:
                return
            seen.append(following)
            call, variable = following
            yield _Read(call, variable, read.key if call[:2] == _MAP else b"")


def _parsed(request: bytes) -> "StateMessage_pb2.StateRequest | None":
    """Return the message of one whole request; None for anything else."""
    if len(request) < _HEADER.size:
        return None
    version, size = _HEADER.unpack_from(request)
    if version != _VERSION or size != len(request) - _HEADER.size:
        return None
    try:
        return StateMessage_pb2.StateRequest.FromString(request[_HEADER.size :])
    except DecodeError:
        return None


def _call(message: Any) -> tuple[Call, Any]:
    """Return the call of a request, and its innermost message."""
    names = []
    while "method" in message.DESCRIPTOR.oneofs_by_name and (name := message.WhichOneof("method")):
        names.append(name)
        message = getattr(message, name)
    return tuple(names), message


def _has_rows(message: Any) -> bool:
    """Return whether a request contains its rows. In Spark 4.0, some requests send them afterwards, in Arrow."""
    is_list = message.DESCRIPTOR.name in ("ListStatePut", "AppendList")
    return not is_list or getattr(message, "fetchWithArrow", True) is False
