# SPDX-License-Identifier: Apache-2.0
"""Calls of a transformWithState processor: which of them wait, and where their errors appear."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyspark
import pytest

from updraft_server.worker.pyspark.adapters import minor_version
from updraft_server.worker.pyspark.connections import Connections
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
from state_server import PORT, StateServer, framed

from updraft_server.worker.pyspark.state_calls import MOST_ANSWER_BYTES, MOST_BYTES, PROBLEMS, Call

_KEY = StructType([StructField("key", StringType())])
_VALUE = StructType([StructField("n", LongType())])
_TAKES_LISTS = "fetchWithArrow" in messages.AppendList.DESCRIPTOR.fields_by_name


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
        yield StatefulProcessorApiClient(PORT, _KEY)


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
        # The server answers this request after the rows, so no other answer may wait for it.
        assert len(server.sent) == 2
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


def test_a_key_of_a_map_is_looked_up_and_read_together(task: StatefulProcessorApiClient, server: StateServer) -> None:
    numbers = MapStateClient(task, _KEY, _VALUE)

    def count_in_map(word: str) -> int:
        (before,) = (numbers.get_value("m", (word,)) or (0,)) if numbers.contains_key("m", (word,)) else (0,)
        numbers.update_value("m", (word,), (before + 1,))
        return int(before)

    assert [count_in_map(word) for word in "abaab"] == [0, 0, 1, 2, 1]
    before = len(server.sent)
    assert [count_in_map(word) for word in "abcab"] == [3, 2, 0, 4, 3]
    # The read after the new word is not sent ahead.
    assert len(server.sent) == before + 6
    assert numbers.contains_key("m", ("a",))
    assert numbers.get_value("m", ("b",)) == (4,)
    assert numbers.get_value("m", ("a",)) == (5,)
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


def test_a_missing_value_is_not_an_error(task: StatefulProcessorApiClient, server: StateServer) -> None:
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
    server.sent.clear()
    # The answer that was not wanted was large, so the next read travels alone.
    assert strings.exists("v")
    assert _GET not in server.calls[-1:]
    strings.update("v", ("y",))
    for _ in range(2):
        assert strings.exists("v")
        assert strings.get("v") == ("y",)
    strings.update("v", ("z",))
    server.fails_at = _GET
    assert strings.exists("v")
    with pytest.raises(PySparkRuntimeError, match=r"^Error reading state ahead: no such luck$"):
        finish(task)


def test_requests_in_another_form_pass_as_they_are(task: StatefulProcessorApiClient, server: StateServer) -> None:
    value_of(task).update("v", (1,))
    request = messages.StateRequest()
    request.stateVariableRequest.valueStateCall.stateName = "v"
    request.stateVariableRequest.valueStateCall.clear.SetInParent()
    for piece in (struct.pack("!i", 0), framed(request.SerializeToString())):
        task.sockfile.write(piece)
        task.sockfile.flush()
    assert task._receive_proto_message()[0] == 0
    assert not value_of(task).exists("v")
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
        task = StatefulProcessorApiClient(PORT, _KEY)
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
def test_a_malformed_answer_fails_the_task(
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
