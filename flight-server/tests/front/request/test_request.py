# SPDX-License-Identifier: Apache-2.0
"""Parsing of commands and checks against the pool's capabilities, without a worker and without reading the payload."""

from dataclasses import replace
from typing import Any

import pytest
from flight_messages import command_request, echo_command, path_request

from updraft.errors import (
    FunctionLoadError,
    FunctionNotFoundError,
    LimitError,
    ProtocolError,
    VersionMismatchError,
)
from updraft.flight_data import split_flight_data
from updraft.v1.control_pb2 import FunctionDescription, FunctionKind
from updraft.v1.exchange_pb2 import (
    AggregateStage,
    Artifact,
    DeferredPayload,
    ExchangeCommand,
    Owner,
    RegisteredFunction,
    SessionFunction,
    TaskIdentity,
)
from updraft_server.front.request.capabilities import Capabilities
from updraft_server.front.request.request import MAX_COMMAND_BYTES, Request, parse_request, resolve

ECHOES = [FunctionDescription(name="echo", version="1"), FunctionDescription(name="echo", version="2")]
POOL = Capabilities(ECHOES, session_functions_allowed=True, python_version="3.11.9", pyspark_version="4.3.0")
GARBAGE = b"\xff no message at all"


def parsed(command: ExchangeCommand) -> Request:
    return parse_request(split_flight_data(command_request(command)))


def session(session_id: str = "", **fields: Any) -> ExchangeCommand:
    function = SessionFunction(python_version="3.11", spark_version="4.3.0", **fields)
    task = TaskIdentity(owner=Owner(application_id="app", session_id=session_id))
    return echo_command(session=function, payload=GARBAGE, task=task)


def test_a_payload_is_never_read() -> None:
    request = resolve(parsed(session()), POOL)
    assert (request.payload, request.function, request.resolved) == (GARBAGE, "session", True)
    assert not request.command.payload


def test_a_waiting_exchange_is_charged_for_all_that_it_holds_or_will_send() -> None:
    request = replace(parsed(session()), schema=b"schema")
    assert request.held_bytes >= len(GARBAGE) + len(b"schema")
    deferred = parsed(echo_command(session=SessionFunction(), deferred_payload=DeferredPayload(size_bytes=1_000_000)))
    assert deferred.held_bytes > 1_000_000
    # Each parsed string has an entry in a table.
    dense = parsed(echo_command(task=TaskIdentity(local_properties={f"{number:x}": "" for number in range(10_000)})))
    assert dense.held_bytes > 10 * dense.command.ByteSize()


@pytest.mark.parametrize(("version", "found"), [("", "2"), ("1", "1")])
def test_a_registered_function_is_the_newest_or_the_one_asked_for(version: str, found: str) -> None:
    command = echo_command(registered=RegisteredFunction(name="echo", version=version))
    assert resolve(parsed(command), POOL).version == found
    for path in [("echo", version), (f"echo@{version}",)] if version else [("echo",)]:
        request = resolve(parse_request(split_flight_data(path_request(*path))), POOL)
        assert (request.function, request.version) == ("echo", found)


def test_the_query_that_databend_names_is_in_every_log_line() -> None:
    headers = {"x-databend-query-id": "q-1"}
    request = parse_request(split_flight_data(path_request("echo")), lambda name: headers.get(name, ""))
    assert request.log_context == {"function": "echo", "query": "q-1"}
    assert parse_request(split_flight_data(path_request("echo"))).log_context == {"function": "echo"}


@pytest.mark.parametrize(
    ("command", "error", "says"),
    [
        (echo_command(protocol_version=9), VersionMismatchError, "version 9"),
        (echo_command(registered=None), ProtocolError, "names no function"),
        (
            echo_command(registered=RegisteredFunction(name="echo", version="3")),
            FunctionNotFoundError,
            "echo 1, echo 2",
        ),
        (
            echo_command(registered=RegisteredFunction(name="eco")),
            FunctionNotFoundError,
            "no function 'eco' is registered; did you mean 'echo'",
        ),
        (echo_command(deferred_payload=DeferredPayload(size_bytes=1)), ProtocolError, "cannot be deferred"),
        (session(artifacts=[Artifact(sha256=b"short", broadcast_id=1)]), ProtocolError, "digest of 5 bytes"),
    ],
)
def test_what_this_pool_cannot_run_is_refused(command: ExchangeCommand, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        resolve(parsed(command), POOL)


def test_a_command_that_is_too_large_is_not_even_parsed() -> None:
    with pytest.raises(LimitError, match="defer its payload"):
        parsed(echo_command(session=SessionFunction(), payload=bytes(MAX_COMMAND_BYTES)))


def test_a_worker_is_bound_by_what_python_remembers_of_a_session() -> None:
    def modules(command: ExchangeCommand) -> str:
        return resolve(parsed(command), POOL).modules

    variables = {"user_environment": {"MODEL": "large"}}
    assert modules(session("a")) == ""
    assert modules(session("a", **variables)) == modules(session("a", **variables)) != ""
    assert modules(session("a", **variables)) != modules(session("a", user_environment={"MODEL": "small"}))


KINDS = Capabilities(
    [
        FunctionDescription(name="mean", version="1", kind=FunctionKind.FUNCTION_KIND_AGGREGATE),
        FunctionDescription(name="words", version="1", kind=FunctionKind.FUNCTION_KIND_TABLE),
        FunctionDescription(name="half", version="1", kind=FunctionKind.FUNCTION_KIND_SCALAR),
        FunctionDescription(name="half", version="2", kind=FunctionKind.FUNCTION_KIND_SCALAR, fault="no weights"),
        FunctionDescription(name="a_module", fault="the module 'a_module' of --functions cannot be imported"),
    ],
    session_functions_allowed=False,
    python_version="3.11.9",
    pyspark_version="",
)


def call_of(name: str, **call: Any) -> Request:
    return resolve(parsed(echo_command(registered=RegisteredFunction(name=name, **call))), KINDS)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("mean", {"stage": AggregateStage.AGGREGATE_STAGE_MERGE, "key_columns": 2}),
        ("mean", {"stage": AggregateStage.AGGREGATE_STAGE_ACCUMULATE, "filtered": True}),
        ("words", {"joined": True}),
        ("half@1", {}),
    ],
)
def test_a_call_that_fits_its_function_is_resolved(name: str, call: dict[str, Any]) -> None:
    request = call_of(name, **call)
    assert (request.function, request.version) == (name.partition("@")[0], "1")


@pytest.mark.parametrize(
    ("name", "call", "says"),
    [
        ("words", {"key_columns": 1}, "is not an aggregate"),
        ("half@1", {"stage": AggregateStage.AGGREGATE_STAGE_ACCUMULATE}, "is not an aggregate"),
        ("mean", {"joined": True}, "does not give a table"),
        ("mean", {"stage": 7}, "stage 7"),
        ("half@1", {"filtered": True}, "is not an aggregate"),
        ("mean", {"stage": AggregateStage.AGGREGATE_STAGE_MERGE, "filtered": True}, "filter the rows"),
    ],
)
def test_a_call_that_does_not_fit_its_function_is_the_clients_error(name: str, call: dict[str, Any], says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        call_of(name, **call)


@pytest.mark.parametrize(("name", "says"), [("half", "no weights"), ("a_module", "cannot be imported")])
def test_what_cannot_be_called_is_refused_with_the_reason(name: str, says: str) -> None:
    with pytest.raises(FunctionLoadError, match=says):
        call_of(name)


@pytest.mark.parametrize(("name", "version"), [("half@3", ""), ("half", "3"), ("other", "")])
def test_what_is_not_there_may_be_of_a_module_that_is_missing(name: str, version: str) -> None:
    with pytest.raises(FunctionNotFoundError, match="'a_module' of --functions cannot be imported"):
        call_of(name, version=version)
