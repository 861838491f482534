# SPDX-License-Identifier: Apache-2.0
"""Commands that are valid protobuf but that no worker could run: refused as the client's error."""

import pytest
from flight_messages import echo_command

from updraft.errors import ProtocolError
from updraft.v1.exchange_pb2 import Artifact, DeferredPayload, Limits, SessionFunction
from updraft_server.front.artifacts.needs import parse_needs
from updraft_server.front.request.capabilities import Capabilities
from updraft_server.front.request.request import Request, check_session_function, resolve

OPEN = Capabilities((), session_functions_allowed=True, python_version="3.11.9", pyspark_version="4.3.0")


@pytest.mark.parametrize("field", ["environment", "user_environment"])
def test_a_null_byte_in_a_variable_is_the_clients_error(field: str) -> None:
    function = SessionFunction(python_version="3.11", spark_version="4.3.0")
    getattr(function, field)["TZ"] = "U\0TC"
    with pytest.raises(ProtocolError, match="TZ has a null byte"):
        check_session_function(function, OPEN)


@pytest.mark.parametrize("number", [-1, -(2**63)])
def test_a_negative_id_of_a_broadcast_variable_is_the_clients_error(number: int) -> None:
    # PySpark's worker would read it as an order to forget another variable, and lose its place in the stream.
    artifact = Artifact(sha256=bytes(32), size_bytes=1, broadcast_id=number)
    with pytest.raises(ProtocolError, match=f"{number} is not the id of a broadcast variable"):
        parse_needs(SessionFunction(artifacts=[artifact]))


@pytest.mark.parametrize("field", Limits.DESCRIPTOR.fields_by_name)
def test_a_negative_limit_is_the_clients_error(field: str) -> None:
    command = echo_command(limits=Limits(**{field: -1}))
    with pytest.raises(ProtocolError, match=f"{field} is -1 in the limits of the command: expected 0 or more"):
        resolve(Request("echo", "", command), OPEN)


def test_a_negative_size_gives_nobody_room_in_the_queue() -> None:
    session = SessionFunction(python_version="3.11", spark_version="4.3.0")
    command = echo_command(session=session, deferred_payload=DeferredPayload(size_bytes=-(2**62)))
    with pytest.raises(ProtocolError, match="the function has -4611686018427387904 bytes"):
        resolve(Request("session", "", command), OPEN)
