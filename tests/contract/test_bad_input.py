# SPDX-License-Identifier: Apache-2.0
"""Bad input of any kind gets a clear error of the right kind, and the pool answers the next call."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow as pa
import pyspark
import pytest

from tests.contract.conftest import MAX_MESSAGE_BYTES
from tests.support.flight import (
    CMD,
    PATH,
    FlightData,
    FlightDescriptor,
    Reply,
    echo_command,
    exchange,
    finishing,
    first_message,
    ipc_parts,
    numbered,
    session_command,
    whole_request,
)
from tests.support.pool import LocalPool
from tests.support.waiting import until
from updraft.protocol import PROTOCOL_VERSION
from updraft.v1 import exchange_pb2

pytestmark = pytest.mark.usefixtures("pool_lives")

BATCH = pa.RecordBatch.from_pydict({"_0": [1, 2, 3]})
(SCHEMA, _), (HEADER, BODY) = ipc_parts(BATCH.schema, [BATCH])
FIRST = first_message(echo_command(), SCHEMA)
ONE = numbered(HEADER, BODY, 1)

# SQL_SCALAR_PANDAS_UDF exists in every supported PySpark.
_PANDAS = 200


def assert_refused(reply: Reply, kind: int, code: grpc.StatusCode, *words: str) -> None:
    """Check that the status has the code and one short line, and that the details are in-band."""
    assert reply.code == code, (reply.code, reply.details)
    assert reply.error.kind == kind, reply.error
    for word in words:
        assert word in reply.error.message
        assert word in reply.details
    assert "\n" not in reply.details
    assert len(reply.details.encode()) <= 1024


def assert_protocol_error(reply: Reply, *words: str) -> None:
    assert_refused(reply, exchange_pb2.ERROR_KIND_PROTOCOL, grpc.StatusCode.INVALID_ARGUMENT, *words)


def test_an_exchange_by_command_answers_batch_for_batch(address: str) -> None:
    reply = exchange(address, whole_request(echo_command(), BATCH.schema, [BATCH, BATCH.slice(0, 0), BATCH]))
    assert reply.code == grpc.StatusCode.OK, reply.details
    assert [m.sequence for m in reply.metadata if m.WhichOneof("event") == "sequence"] == [1, 2, 3]
    finish = reply.metadata[-1].finish
    assert (finish.batches, finish.rows) == (3, 6)
    assert reply.batches() == [BATCH, BATCH.slice(0, 0), BATCH]


def test_the_log_says_whose_exchange_it_was(pool: LocalPool) -> None:
    exchange(pool.tcp_address, whole_request(echo_command(), BATCH.schema, [BATCH]))

    def logged() -> bool:
        entries = [json.loads(line) for line in pool.log().splitlines() if line.endswith("}") and line.startswith("{")]
        ended = [entry for entry in entries if entry["event"] == "exchange ended" and entry["outcome"] == "ok"]
        named = {"application", "query", "stage", "partition", "attempt"}
        return any(named <= entry.keys() and entry["application"] == "tests" for entry in ended)

    until("the exchange is in the log", logged)


def test_an_exchange_of_no_batch_ends_with_counts_and_no_schema(address: str) -> None:
    reply = exchange(address, whole_request(echo_command(), BATCH.schema, []))
    assert reply.code == grpc.StatusCode.OK, reply.details
    assert [metadata.WhichOneof("event") for metadata in reply.metadata] == ["admitted", "finish"]
    assert not any(message.data_header for message in reply.messages)
    assert (reply.metadata[-1].finish.batches, reply.metadata[-1].finish.rows) == (0, 0)


def test_a_plain_exchange_of_no_batch_ends_well(address: str) -> None:
    descriptor = FlightDescriptor(type=PATH, path=["echo"])
    reply = exchange(address, [FlightData(flight_descriptor=descriptor, data_header=SCHEMA)])
    assert reply.code == grpc.StatusCode.OK, reply.details


def test_an_unknown_function(address: str) -> None:
    reply = exchange(address, whole_request(echo_command(name="no_such"), BATCH.schema, [BATCH]))
    kind, code = exchange_pb2.ERROR_KIND_FUNCTION_NOT_FOUND, grpc.StatusCode.NOT_FOUND
    assert_refused(reply, kind, code, "no_such")


@pytest.mark.parametrize("version", [0, 2, 2**32 - 1])
def test_a_protocol_version_that_is_not_spoken(address: str, version: int) -> None:
    reply = exchange(address, whole_request(echo_command(protocol_version=version), BATCH.schema, [BATCH]))
    kind, code = exchange_pb2.ERROR_KIND_VERSION, grpc.StatusCode.FAILED_PRECONDITION
    assert_refused(reply, kind, code, str(version), "1")


def test_another_python_is_named_beside_the_pools(address: str) -> None:
    reply = exchange(address, whole_request(session_command(python_version="2.7"), BATCH.schema, [BATCH]))
    ours = session_command().session.python_version
    assert_refused(reply, exchange_pb2.ERROR_KIND_VERSION, grpc.StatusCode.FAILED_PRECONDITION, "2.7", ours)


def test_another_pyspark_is_named_beside_the_pools(address: str) -> None:
    reply = exchange(
        address, whole_request(session_command(spark_version="3.4.1", eval_type=_PANDAS), BATCH.schema, [BATCH])
    )
    ours = pyspark.__version__
    assert_refused(reply, exchange_pb2.ERROR_KIND_VERSION, grpc.StatusCode.FAILED_PRECONDITION, "3.4.1", ours)


def test_a_session_function_that_is_no_pickle(address: str) -> None:
    reply = exchange(address, whole_request(session_command(eval_type=_PANDAS), BATCH.schema, [BATCH]))
    assert reply.code in {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INVALID_ARGUMENT}
    assert reply.error.message


def test_a_command_that_is_no_protobuf(address: str) -> None:
    descriptor = FlightDescriptor(type=CMD, cmd=b"\xff\xff garbage")
    reply = exchange(address, [FlightData(flight_descriptor=descriptor, data_header=SCHEMA)])
    assert reply.code == grpc.StatusCode.INVALID_ARGUMENT
    assert "ExchangeCommand" in reply.details


def test_an_empty_command(address: str) -> None:
    assert_protocol_error_or_version(exchange(address, [first_message(exchange_pb2.ExchangeCommand(), SCHEMA)]))


def assert_protocol_error_or_version(reply: Reply) -> None:
    assert reply.error.kind in {exchange_pb2.ERROR_KIND_PROTOCOL, exchange_pb2.ERROR_KIND_VERSION}


def test_a_command_without_a_function(address: str) -> None:
    assert_protocol_error(
        exchange(address, [first_message(exchange_pb2.ExchangeCommand(protocol_version=PROTOCOL_VERSION), SCHEMA)])
    )


def test_no_message_at_all(address: str) -> None:
    assert exchange(address, []).code == grpc.StatusCode.INVALID_ARGUMENT


def test_no_descriptor(address: str) -> None:
    assert exchange(address, [FlightData(data_header=SCHEMA), ONE]).code == grpc.StatusCode.INVALID_ARGUMENT


def test_bytes_that_are_no_flight_data(address: str) -> None:
    assert exchange(address, [b"\xff\xff\xff\xff\xff garbage"]).code == grpc.StatusCode.INVALID_ARGUMENT


def test_an_empty_path(address: str) -> None:
    reply = exchange(address, [FlightData(flight_descriptor=FlightDescriptor(type=PATH), data_header=SCHEMA)])
    assert reply.code in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}


@pytest.mark.parametrize("schema", [b"", b"garbage", b"\0" * 64, HEADER], ids=["none", "text", "zeros", "a batch"])
def test_a_schema_that_is_none(address: str, schema: bytes) -> None:
    assert_protocol_error(exchange(address, [first_message(echo_command(), schema), ONE, finishing(1, 3)]))


@pytest.mark.parametrize(
    ("header", "body"),
    [(b"garbage", BODY), (b"\0" * 64, BODY), (HEADER, b""), (HEADER, BODY[:8]), (SCHEMA, b""), (b"", BODY)],
    ids=["text header", "zero header", "no body", "short body", "schema again", "no header"],
)
def test_a_batch_that_is_none(address: str, header: bytes, body: bytes) -> None:
    reply = exchange(address, [FIRST, numbered(header, body, 1), finishing(1, 3)])
    assert_protocol_error(reply)


def test_offsets_that_point_outside_of_their_buffer(address: str) -> None:
    text = pa.RecordBatch.from_pydict({"_0": ["aaaa", "bbbb", "cccc"]})
    (schema, _), (header, body) = ipc_parts(text.schema, [text])
    hostile = body.replace((4).to_bytes(4, "little"), (-5 & 0xFFFFFFFF).to_bytes(4, "little"), 1)
    assert hostile != body
    reply = exchange(address, [first_message(echo_command(), schema), numbered(header, hostile, 1), finishing(1, 3)])
    assert_protocol_error(reply)


def test_a_batch_of_another_schema(address: str) -> None:
    other = pa.RecordBatch.from_pydict({"_0": ["x"], "_1": [1.5]})
    _, (header, body) = ipc_parts(other.schema, [other])
    assert_protocol_error(exchange(address, [FIRST, numbered(header, body, 1), finishing(1, 1)]))


def test_a_compressed_batch(address: str) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.RecordBatch.from_pydict({"_0": [0] * 10_000}))
    _, message = pa.ipc.MessageReader.open_stream(sink.getvalue())
    compressed = numbered(message.metadata.to_pybytes(), message.body.to_pybytes(), 1)
    assert_protocol_error(exchange(address, [FIRST, compressed, finishing(1, 10_000)]), "compress")


def test_a_dictionary_encoded_column(address: str) -> None:
    batch = pa.RecordBatch.from_pydict({"_0": pa.array(["a", "b", "a"]).dictionary_encode()})
    (schema, _), *rest = ipc_parts(batch.schema, [batch])
    messages = [numbered(header, body, index) for index, (header, body) in enumerate(rest, start=1)]
    reply = exchange(address, [first_message(echo_command(), schema), *messages, finishing(1, 3)])
    assert_protocol_error(reply, "dictionar")


def test_a_batch_beyond_the_pools_limit(address: str) -> None:
    large = pa.RecordBatch.from_pydict({"_0": ["x" * (MAX_MESSAGE_BYTES * 3 // 2)]})
    reply = exchange(address, whole_request(echo_command(), large.schema, [large]))
    kind, code = exchange_pb2.ERROR_KIND_LIMIT, grpc.StatusCode.INVALID_ARGUMENT
    assert_refused(reply, kind, code, str(MAX_MESSAGE_BYTES))


def test_a_batch_far_beyond_the_pools_limit_is_not_even_received(address: str) -> None:
    huge = pa.RecordBatch.from_pydict({"_0": ["x" * (MAX_MESSAGE_BYTES * 10)]})
    reply = exchange(address, whole_request(echo_command(), huge.schema, [huge]))
    assert reply.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in reply.details


@pytest.mark.parametrize("sequence", [0, 2, 7], ids=["zero", "a gap", "far off"])
def test_a_sequence_that_does_not_start_at_one(address: str, sequence: int) -> None:
    assert_protocol_error(exchange(address, [FIRST, numbered(HEADER, BODY, sequence), finishing(1, 3)]))


def test_a_gap_in_the_sequence(address: str) -> None:
    assert_protocol_error(exchange(address, [FIRST, ONE, numbered(HEADER, BODY, 3), finishing(2, 6)]), "3", "2")


def test_a_number_that_comes_again(address: str) -> None:
    assert_protocol_error(exchange(address, [FIRST, ONE, ONE, finishing(2, 6)]))


def test_a_batch_without_a_number(address: str) -> None:
    assert_protocol_error(exchange(address, [FIRST, FlightData(data_header=HEADER, data_body=BODY)]))


def test_metadata_that_is_no_protobuf(address: str) -> None:
    bad = FlightData(data_header=HEADER, data_body=BODY, app_metadata=b"\xff\xff\xff")
    assert_protocol_error(exchange(address, [FIRST, bad]))


def test_an_end_of_stream_without_finish(address: str) -> None:
    assert_protocol_error(exchange(address, [FIRST, ONE]), "finish")


@pytest.mark.parametrize("counts", [(2, 3), (1, 4), (0, 0)], ids=["batches", "rows", "both"])
def test_a_finish_whose_counts_are_wrong(address: str, counts: tuple[int, int]) -> None:
    assert_protocol_error(exchange(address, [FIRST, ONE, finishing(*counts)]))


def test_a_batch_after_finish(address: str) -> None:
    assert_protocol_error(exchange(address, [FIRST, ONE, finishing(1, 3), numbered(HEADER, BODY, 2)]))


def test_a_second_command(address: str) -> None:
    assert_protocol_error(exchange(address, [FIRST, FIRST, ONE, finishing(1, 3)]))


def test_an_environment_variable_that_is_not_allowed(address: str) -> None:
    command = session_command()
    command.session.environment["LD_PRELOAD"] = "/tmp/evil.so"
    reply = exchange(address, whole_request(command, BATCH.schema, [BATCH]))
    assert reply.code != grpc.StatusCode.OK
    assert "LD_PRELOAD" in reply.error.message


def test_a_client_that_says_nothing_is_cut_at_its_deadline(address: str) -> None:
    never = threading.Event()

    def silent() -> Iterator[Any]:
        yield FIRST
        never.wait(timeout=10)

    reply = exchange(address, silent(), timeout_seconds=1)
    never.set()
    assert reply.code == grpc.StatusCode.DEADLINE_EXCEEDED
