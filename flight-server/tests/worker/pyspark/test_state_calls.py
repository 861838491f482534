# SPDX-License-Identifier: Apache-2.0
"""Calls of a transformWithState processor: which of them wait, and where their errors appear."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyspark
import pytest

from updraft.errors import UpdraftError
from updraft_server.worker.exchange import RequestBatch
from updraft_server.worker.pyspark.adapters import minor_version
from updraft_server.worker.pyspark.connections import SCHEMA, Connections
from updraft_server.worker.pyspark.host_services import HostServices

if minor_version(pyspark.__version__) < (4, 0):
    pytest.skip("transformWithState came with Spark 4.0", allow_module_level=True)
pytest.importorskip("pandas")

from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming import stateful_processor_api_client
from pyspark.sql.streaming.list_state_client import ListStateClient
from pyspark.sql.streaming.map_state_client import MapStateClient
from pyspark.sql.streaming.proto import StateMessage_pb2 as messages
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient, StatefulProcessorHandleState
from pyspark.sql.streaming.value_state_client import ValueStateClient
from pyspark.sql.types import LongType, StringType, StructField, StructType

from updraft_server.worker.pyspark.state_calls import MOST_ANSWER_BYTES, MOST_BYTES, PROBLEMS, Call

_PORT = 4711
_KEY = StructType([StructField("key", StringType())])
_VALUE = StructType([StructField("n", LongType())])
_TAKES_LISTS = "fetchWithArrow" in messages.AppendList.DESCRIPTOR.fields_by_name


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
        self._values: dict[tuple[bytes, str], bytes] = {}
        self._key = b""
        self._answers = bytearray()
        self._unanswered_bytes = 0
        self._has_ended = False
        self._has_hung_up = False

    def acknowledge(self) -> None:
        """Do nothing: these tests do not wait for it."""

    def fail(self, error: UpdraftError) -> NoReturn:
        raise error

    def reply(self, batch: pa.RecordBatch, *, sequence: int) -> None:
        data = batch.to_pylist()[0]["data"]
        if sequence == 1:
            assert data == b"%d" % _PORT
            return
        self.sent.append(data)
        self._unanswered_bytes += len(data)
        self.most_unanswered_bytes = max(self.most_unanswered_bytes, self._unanswered_bytes)
        rest = data
        while rest and not self._has_ended:
            version, size = struct.unpack_from("!ii", rest)
            if version != 0:  # A table in Arrow, which follows a request.
                self._answers += bytes(4)
                return
            message, rest = messages.StateRequest.FromString(rest[8 : 8 + size]), rest[8 + size :]
            self._serve(message)

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
        request = message.stateVariableRequest.valueStateCall
        at = self._key, request.stateName
        if method == "setImplicitKey":
            self._key = message.implicitGroupingKeyRequest.setImplicitKey.key
        elif method == "valueStateUpdate":
            self._values[at] = request.valueStateUpdate.value
        elif method == "get":
            return messages.StateResponse(value=self._values.get(at, b""))
        elif method == "exists" and at not in self._values:
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


def known_calls(message: Any = messages.StateRequest.DESCRIPTOR, before: Call = ()) -> Iterator[Call]:
    if "method" not in message.oneofs_by_name:
        yield before
    else:
        for field in message.oneofs_by_name["method"].fields:
            yield from known_calls(field.message_type, (*before, field.name))


@pytest.fixture
def server() -> StateServer:
    return StateServer()


@pytest.fixture
def client(server: StateServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[StatefulProcessorApiClient]:
    # Set to themselves, so that the originals are restored after the test replaces them.
    monkeypatch.setattr(stateful_processor_api_client, "socket", stateful_processor_api_client.socket)
    monkeypatch.setattr(pyspark.taskcontext, "local_connect_and_auth", pyspark.taskcontext.local_connect_and_auth)
    with HostServices().reached_by(Connections(server)):
        yield StatefulProcessorApiClient(_PORT, _KEY)


@pytest.fixture
def task(client: StatefulProcessorApiClient, server: StateServer) -> StatefulProcessorApiClient:
    """Client whose processor is initialized."""
    client.set_handle_state(StatefulProcessorHandleState.INITIALIZED)
    server.sent.clear()
    return client


def finish(client: StatefulProcessorApiClient) -> None:
    client.remove_implicit_key()
    client.set_handle_state(StatefulProcessorHandleState.CLOSED)


def value_of(client: StatefulProcessorApiClient) -> ValueStateClient:
    return ValueStateClient(client, _VALUE)


_CALLS: dict[Call, Callable[[StatefulProcessorApiClient], None]] = {
    ("implicitGroupingKeyRequest", "setImplicitKey"): lambda client: client.set_implicit_key(("a",)),
    ("implicitGroupingKeyRequest", "removeImplicitKey"): lambda client: client.remove_implicit_key(),
    ("statefulProcessorCall", "timerStateCall", "register"): lambda client: client.register_timer(1),
    ("statefulProcessorCall", "timerStateCall", "delete"): lambda client: client.delete_timer(1),
    ("stateVariableRequest", "valueStateCall", "valueStateUpdate"): lambda client: value_of(client).update("v", (1,)),
    ("stateVariableRequest", "valueStateCall", "clear"): lambda client: value_of(client).clear("v"),
    ("stateVariableRequest", "listStateCall", "listStatePut"): lambda client: ListStateClient(client, _VALUE).put(
        "v", [(1,), (2,)]
    ),
    ("stateVariableRequest", "listStateCall", "appendValue"): lambda client: ListStateClient(
        client, _VALUE
    ).append_value("v", (1,)),
    ("stateVariableRequest", "listStateCall", "appendList"): lambda client: ListStateClient(client, _VALUE).append_list(
        "v", [(1,), (2,)]
    ),
    ("stateVariableRequest", "listStateCall", "clear"): lambda client: ListStateClient(client, _VALUE).clear("v"),
    ("stateVariableRequest", "mapStateCall", "updateValue"): lambda client: MapStateClient(
        client, _KEY, _VALUE
    ).update_value("v", ("a",), (1,)),
    ("stateVariableRequest", "mapStateCall", "removeKey"): lambda client: MapStateClient(
        client, _KEY, _VALUE
    ).remove_key("v", ("a",)),
    ("stateVariableRequest", "mapStateCall", "clear"): lambda client: MapStateClient(client, _KEY, _VALUE).clear("v"),
}
_UPDATE = ("stateVariableRequest", "valueStateCall", "valueStateUpdate")
_GET = ("stateVariableRequest", "valueStateCall", "get")


def _is_collected(call: Call) -> bool:
    return _TAKES_LISTS or call[-1] not in ("listStatePut", "appendList")


_COLLECTED = [call for call in PROBLEMS if _is_collected(call)]


def test_every_collected_request_is_one_of_pyspark() -> None:
    assert PROBLEMS.keys() <= set(known_calls())
    assert PROBLEMS.keys() == _CALLS.keys()


def test_changes_travel_with_the_request_that_reads(task: StatefulProcessorApiClient, server: StateServer) -> None:
    for call in _COLLECTED:
        _CALLS[call](task)
    value_of(task).update("v", (7,))
    assert server.sent == []
    assert value_of(task).get("v") == (7,)
    assert len(server.sent) == 1
    assert server.calls[1:] == [*_COLLECTED, _UPDATE, _GET]


def test_many_changes_never_exceed_the_bound(task: StatefulProcessorApiClient, server: StateServer) -> None:
    for number in range(2000):
        value_of(task).update("v", (number,))
    assert value_of(task).get("v") == (1999,)
    assert server.calls.count(_UPDATE) == 2000
    assert server.most_unanswered_bytes <= MOST_BYTES
    assert len(server.sent) < 100


def test_a_large_request_comes_after_all_others_and_is_awaited(
    task: StatefulProcessorApiClient, server: StateServer
) -> None:
    strings = ValueStateClient(task, StructType([StructField("s", StringType())]))
    value_of(task).update("small", (1,))
    strings.update("v", ("x" * MOST_BYTES,))
    assert server.calls[1:] == [_UPDATE, _UPDATE]
    value_of(task).update("small", (2,))
    assert strings.get("v") == ("x" * MOST_BYTES,)
    server.fails_at = _UPDATE
    with pytest.raises(PySparkRuntimeError, match=r"^Error updating value state: no such luck$"):
        strings.update("v", ("x" * 10 * MOST_BYTES,))


def test_rows_of_a_list_in_arrow_follow_their_request(task: StatefulProcessorApiClient, server: StateServer) -> None:
    rows = ListStateClient(task, _VALUE)
    value_of(task).update("v", (1,))
    if not _TAKES_LISTS:
        rows.append_list("v", [(1,), (2,)])
    else:
        request = messages.StateRequest()
        request.stateVariableRequest.listStateCall.appendList.fetchWithArrow = True
        task._send_proto_message(request.SerializeToString())
        task._send_arrow_state(_VALUE, [(1,), (2,)])
        assert task._receive_proto_message()[0] == 0
    assert server.calls[1:] == [_UPDATE, ("stateVariableRequest", "listStateCall", "appendList")]
    finish(task)


def count(client: StatefulProcessorApiClient, key: str) -> int:
    """Count the calls for a key, as most processors do."""
    client.set_implicit_key((key,))
    value = value_of(client)
    (before,) = (value.get("v") or (0,)) if value.exists("v") else (0,)
    value.update("v", (before + 1,))
    return int(before)


def test_reads_that_follow_each_other_travel_together(task: StatefulProcessorApiClient, server: StateServer) -> None:
    assert [count(task, key) for key in "aab"] == [0, 1, 0]
    assert [count(task, key) for key in "ab"] == [2, 1]
    before = len(server.sent)
    assert [count(task, key) for key in "ab"] == [3, 2]
    assert len(server.sent) == before + 2
    finish(task)


def test_a_read_that_was_sent_ahead_is_dropped_after_a_change(
    task: StatefulProcessorApiClient, server: StateServer
) -> None:
    value = value_of(task)
    assert [count(task, key) for key in "aa"] == [0, 1]
    assert value.exists("v")
    assert server.calls[-1] == _GET
    value.update("v", (7,))
    assert value.get("v") == (7,)
    assert [count(task, key) for key in "ab"] == [7, 0]
    finish(task)


def test_a_read_is_sent_ahead_only_if_it_followed_the_last_time(
    task: StatefulProcessorApiClient, server: StateServer
) -> None:
    value = value_of(task)
    assert [count(task, key) for key in "aa"] == [0, 1]
    for expected in (2, 2):
        assert value.exists("v")
        value.update("v", (1,))
        assert server.calls.count(_GET) == expected
    finish(task)


def test_that_there_is_no_value_is_no_error_even_if_unwanted(
    task: StatefulProcessorApiClient, server: StateServer
) -> None:
    value = value_of(task)
    assert value.get("v") is None
    assert not value.exists("v")
    assert value.get("v") is None
    assert server.calls[-1] == ("stateVariableRequest", "valueStateCall", "exists")
    finish(task)


def test_an_answer_that_no_function_wants_may_be_large_or_an_error(
    task: StatefulProcessorApiClient, server: StateServer
) -> None:
    strings = ValueStateClient(task, StructType([StructField("s", StringType())]))
    strings.update("v", ("x" * 2 * MOST_ANSWER_BYTES,))
    assert strings.exists("v")
    assert strings.get("v") == ("x" * 2 * MOST_ANSWER_BYTES,)
    assert strings.exists("v")
    strings.update("v", ("y",))
    for _ in range(2):
        assert strings.exists("v")
        assert strings.get("v") == ("y",)
    strings.update("v", ("z",))
    server.fails_at = _GET
    assert strings.exists("v")
    with pytest.raises(PySparkRuntimeError, match=r"^Error getting value state: no such luck$"):
        finish(task)


@pytest.mark.parametrize("call", _CALLS)
def test_an_error_is_that_of_pyspark_where_the_state_is_next_read(
    client: StatefulProcessorApiClient, server: StateServer, call: Call
) -> None:
    server.fails_at = call
    with pytest.raises(PySparkRuntimeError) as awaited:
        _CALLS[call](client)
    late = StateServer()
    with HostServices().reached_by(Connections(late)):
        task = StatefulProcessorApiClient(_PORT, _KEY)
    task.set_handle_state(StatefulProcessorHandleState.INITIALIZED)
    late.fails_at = call
    if _is_collected(call):
        _CALLS[call](task)
    fails = (lambda: value_of(task).get("v")) if _is_collected(call) else (lambda: _CALLS[call](task))
    with pytest.raises(PySparkRuntimeError) as raised:
        fails()
    assert str(raised.value) == str(awaited.value)


def test_an_error_of_the_last_change_fails_the_task(task: StatefulProcessorApiClient, server: StateServer) -> None:
    server.fails_at = _UPDATE
    value_of(task).update("v", (1,))
    with pytest.raises(PySparkRuntimeError, match=r"^Error updating value state: no such luck$"):
        finish(task)


def test_no_call_waits_for_a_server_that_has_failed(task: StatefulProcessorApiClient, server: StateServer) -> None:
    server.fails_at = _UPDATE
    value_of(task).update("v", (1,))
    actions: Sequence[Callable[[], object]] = (
        lambda: value_of(task).get("v"),
        lambda: value_of(task).update("v", (2,)),
        lambda: value_of(task).exists("v"),
        lambda: finish(task),
    )
    for action in actions:
        with pytest.raises(PySparkRuntimeError, match="no such luck"):
            action()


def test_a_server_that_hangs_up_ends_the_stream(task: StatefulProcessorApiClient, server: StateServer) -> None:
    server.hangs_up_at = ("stateVariableRequest", "valueStateCall", "clear")
    value_of(task).update("v", (1,))
    value_of(task).clear("v")
    with pytest.raises(EOFError):
        value_of(task).get("v")
    with pytest.raises(EOFError):
        finish(task)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (struct.pack("!i", -1), "announced an answer of -1 bytes"),
        (struct.pack("!i", MOST_ANSWER_BYTES + 1), "announced an answer of 1048577 bytes"),
        (framed(b"\xff\xff\xff"), "cannot be read"),
    ],
)
def test_an_answer_that_is_none_fails_the_task(
    task: StatefulProcessorApiClient, server: StateServer, answer: bytes, problem: str
) -> None:
    server.fails_at, server.says = _UPDATE, answer
    value_of(task).update("v", (1,))
    for _ in range(2):
        with pytest.raises(PySparkRuntimeError, match=f"Error updating value state: the state server.*{problem}"):
            finish(task)


def test_every_call_is_awaited_until_the_processor_is_initialized(
    client: StatefulProcessorApiClient, server: StateServer
) -> None:
    server.fails_at = _UPDATE
    with pytest.raises(PySparkRuntimeError, match="no such luck"):
        value_of(client).update("v", (1,))


def test_every_call_is_awaited_once_a_variable_was_deleted(
    task: StatefulProcessorApiClient, server: StateServer
) -> None:
    value_of(task).update("v", (1,))
    task.delete_if_exists("v")
    server.fails_at = _UPDATE
    with pytest.raises(PySparkRuntimeError, match="no such luck"):
        value_of(task).update("v", (1,))
