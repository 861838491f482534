# SPDX-License-Identifier: Apache-2.0
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import flight
from running_writer import command

from updraft.errors import LimitError, ProtocolError, VersionMismatchError
from updraft.flight_data import join_flight_data, split_flight_data, varint
from updraft.protocol import PROTOCOL_VERSION
from updraft.v1.exchange_pb2 import ExchangeCommand, Owner, RegisteredFunction, TaskIdentity
from updraft.v1.write_pb2 import BloomFilter, Pace, ParquetOptions
from updraft_writer.request import checked_command, parse_command, with_schema

SCHEMA = pa.schema({"n": pa.int64()})
HEADER = memoryview(pa.ipc.read_message(SCHEMA.serialize()).metadata).cast("B")
NOTHING = memoryview(b"")


def first_message(encoded: bytes, header: memoryview = HEADER) -> bytes:
    descriptor = flight.FlightDescriptor.for_command(encoded).serialize()
    return join_flight_data(header, b"", NOTHING, descriptor=bytes(descriptor))


def parsed(**changes: Any) -> Any:
    fields = split_flight_data(first_message(command(**{"path": "/f", **changes}).SerializeToString()))
    return with_schema(parse_command(fields), fields.data_header, share="")


def test_a_command_and_its_schema_are_read() -> None:
    request = parsed()
    assert request.command.path == "/f"
    assert request.decoder.schema.equals(SCHEMA)


@pytest.mark.parametrize(
    ("changes", "limit_bytes"),
    [
        ({}, None),
        ({"max_in_flight_bytes": 5}, 5),
        ({"pace": Pace.PACE_SYNCHRONOUS, "max_in_flight_bytes": 5}, 0),
        ({"pace": Pace.PACE_ASYNCHRONOUS}, None),
    ],
)
def test_a_synchronous_file_may_hold_nothing_when_the_next_batch_comes(changes: Any, limit_bytes: int | None) -> None:
    assert parsed(**changes).in_flight_limit_bytes == limit_bytes


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, True),
        ({"pace": Pace.PACE_SYNCHRONOUS}, False),
        ({"pace": Pace.PACE_SYNCHRONOUS, "hold_gpu": True}, True),
        ({"pace": Pace.PACE_ASYNCHRONOUS, "hold_gpu": False}, False),
    ],
)
def test_a_place_on_the_gpu_is_held_by_default_when_the_file_is_asynchronous(changes: Any, holds: bool) -> None:
    assert parsed(**changes).holds_gpu is holds


def test_log_lines_name_the_task() -> None:
    task = TaskIdentity(
        owner=Owner(application_id="app"), query_id="7", stage_id=1, stage_attempt_number=2, partition_id=3
    )
    assert parsed(task=task).log_context == {
        "path": "/f",
        "application": "app",
        "query": "7",
        "stage": "1.2",
        "partition": "3",
        "attempt": "0",
    }


def test_a_command_for_a_pool_is_not_taken_for_a_file() -> None:
    function = RegisteredFunction(name="echo")
    encoded = ExchangeCommand(protocol_version=PROTOCOL_VERSION, registered=function).SerializeToString()
    with pytest.raises(ProtocolError, match="delivery"):
        parse_command(split_flight_data(first_message(encoded)))


def test_another_version_is_refused_and_both_are_named() -> None:
    with pytest.raises(VersionMismatchError, match="version 9 of the protocol, this writer version 1"):
        parsed(protocol_version=9)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"footer": {"k": "v" * (4 << 20)}}, "the command has"),
        ({"parquet": ParquetOptions(bloom_filters=[BloomFilter()] * 32_769)}, "asks for 32769 bloom filters"),
        ({"footer": {str(key): "" for key in range(1025)}}, "the footer has 1025 keys"),
    ],
    ids=["long", "filters", "keys"],
)
def test_a_command_that_would_cost_memory_or_time_is_refused(changes: Any, says: str) -> None:
    with pytest.raises(LimitError, match=says):
        parsed(**changes)


def test_a_path_descriptor_is_refused() -> None:
    descriptor = bytes(flight.FlightDescriptor.for_path("echo").serialize())
    message = join_flight_data(HEADER, b"", NOTHING, descriptor=descriptor)
    with pytest.raises(ProtocolError, match="CMD with a WriteCommand"):
        parse_command(split_flight_data(message))


@given(st.binary(max_size=200))
@example(b"")
def test_whatever_the_first_message_is_it_is_a_command_or_the_client_s_error(message: bytes) -> None:
    with suppress(ProtocolError, VersionMismatchError):
        parse_command(split_flight_data(message))


@given(st.binary(max_size=200))
def test_whatever_the_command_is_it_is_one_or_the_client_s_error(encoded: bytes) -> None:
    with suppress(ProtocolError, VersionMismatchError):
        with_schema(parse_command(split_flight_data(first_message(encoded))), HEADER, share="")


@given(st.binary(min_size=1, max_size=200))
def test_whatever_the_schema_is_it_is_one_or_the_client_s_error(header: bytes) -> None:
    with suppress(ProtocolError):
        with_schema(command("/f"), memoryview(header), share="")


def test_a_command_of_megabytes_is_refused_before_it_is_parsed() -> None:
    """Two million empty options would take thirty times their bytes in memory."""
    options = b"\x4a\x00" * (1 << 21)
    encoded = b"\x72" + varint(len(options)) + options
    with pytest.raises(LimitError, match="the command has 4194309 bytes, the limit of this writer is 4194304"):
        checked_command(encoded)
