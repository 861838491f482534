# SPDX-License-Identifier: Apache-2.0
"""A batch that is larger than a message travels in parts, both ways, with clients that share no code with the pool.

Arrow's own Flight clients cannot send a body without a header: they have no parts, and are told what to do instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from tests.contract.conftest import MAX_MESSAGE_BYTES
from tests.support.flight import (
    FlightData,
    Reply,
    echo_command,
    exchange,
    finishing,
    first_message,
    ipc_parts,
    numbered,
)
from tests.support.pool import LocalPool
from updraft.v1.exchange_pb2 import ERROR_KIND_LIMIT, ERROR_KIND_PROTOCOL, BatchPart, RequestMetadata

pytestmark = pytest.mark.usefixtures("pool_lives")

MIB = 1 << 20
PART_BYTES = MIB
# All parts differ, so that swapped parts would be noticed.
TEXT = "".join(f"{number:08x}" for number in range(5 * MIB // 8))
LARGE = pa.record_batch({"_0": [TEXT, None, "ž", TEXT[::-1]]})
SMALL = pa.record_batch({"_0": ["small", None]})
(SCHEMA, _), (HEADER, BODY), SMALL_PARTS = ipc_parts(LARGE.schema, [LARGE, SMALL])


def in_parts(sequence: int) -> Iterator[Any]:
    """Yield the large batch in parts, as the specification says."""
    last = (len(BODY) - 1) // PART_BYTES * PART_BYTES
    for offset in range(0, last, PART_BYTES):
        yield part(offset, BODY[offset : offset + PART_BYTES])
    yield numbered(HEADER, BODY[last:], sequence)


def part(offset: int, data: bytes, body_bytes: int = len(BODY)) -> Any:
    metadata = RequestMetadata(part=BatchPart(body_bytes=body_bytes, offset=offset)).SerializeToString()
    return FlightData(app_metadata=metadata, data_body=data)


def opening(max_parted_bytes: int = 32 * MIB) -> Any:
    """Return the opening of an exchange of `echo` that accepts results of up to this size in parts."""
    command = echo_command()
    command.limits.max_reply_batch_bytes_in_parts = max_parted_bytes
    return first_message(command, SCHEMA)


def batches_of(reply: Reply) -> list[pa.RecordBatch]:
    """Return the batches of a reply, assembled from their parts, which must come in order and without gaps."""
    body, batches = b"", []
    for message, metadata in zip(reply.messages, reply.metadata, strict=True):
        match metadata.WhichOneof("event"):
            case "part":
                assert not message.data_header
                assert metadata.part.offset == len(body)
                assert metadata.part.body_bytes > len(body) + len(message.data_body)
                announced = metadata.part.body_bytes
                body += message.data_body
            case "sequence":
                whole = body + message.data_body
                assert not body or len(whole) == announced
                batches.append(_read(message.data_header, whole))
                body = b""
    assert not body
    return batches


def _read(header: bytes, body: bytes) -> pa.RecordBatch:
    encapsulated = b"\xff\xff\xff\xff" + len(header).to_bytes(4, "little") + header + body
    return pa.ipc.read_record_batch(pa.ipc.read_message(encapsulated), LARGE.schema)


def test_large_batches_go_and_come_in_parts_between_small_ones(address: str) -> None:
    requests = [opening(), *in_parts(1), numbered(*SMALL_PARTS, 2), *in_parts(3), finishing(3, 10)]
    reply = exchange(address, requests)
    assert reply.code is grpc.StatusCode.OK, reply.details
    assert batches_of(reply) == [LARGE, SMALL, LARGE]
    assert [m.sequence for m in reply.metadata if m.WhichOneof("event") == "sequence"] == [1, 2, 3]
    assert max(len(message.SerializeToString()) for message in reply.messages) <= MAX_MESSAGE_BYTES
    # Parts do not count as batches.
    assert (reply.metadata[-1].finish.batches, reply.metadata[-1].finish.rows) == (3, 10)
    assert sum(m.WhichOneof("event") == "part" for m in reply.metadata) >= 2 * (len(BODY) // MAX_MESSAGE_BYTES)


def refusal(reply: Reply) -> str:
    assert reply.code is grpc.StatusCode.INVALID_ARGUMENT, reply.details
    assert reply.error.kind == ERROR_KIND_LIMIT
    return reply.error.message


def test_a_batch_beyond_what_the_pool_takes_is_refused_by_its_first_part(address: str) -> None:
    size_bytes = 1 << 40
    said = refusal(exchange(address, [opening(), part(0, b"x", size_bytes)]))
    assert f"batch 1 has {size_bytes} bytes" in said
    # The message names the smaller limit of this machine.
    assert "raise --max-batch-bytes of the pool" in said or "raise --worker-memory-bytes of the pool" in said


def test_a_result_beyond_what_the_client_takes_is_refused_with_its_limit(address: str) -> None:
    said = refusal(exchange(address, [opening(max_parted_bytes=0), *in_parts(1), finishing(1, 4)]))
    assert "reply batch 1 has" in said
    assert "raise the client's limit" in said


def test_a_message_that_is_too_large_is_no_part(address: str) -> None:
    said = refusal(exchange(address, [opening(), part(0, BODY[: MAX_MESSAGE_BYTES + 1])]))
    assert "raise --max-message-bytes" in said


@pytest.mark.parametrize(
    "messages",
    [
        [part(0, BODY[:8]), part(9, BODY[9:17])],
        [part(0, BODY[:8]), numbered(HEADER, BODY[8:16], 1)],
        [part(0, BODY[:8]), finishing(0, 0)],
        [part(0, BODY[:8])],
    ],
    ids=["a gap", "too little", "a finish inside", "an end inside"],
)
def test_parts_that_make_no_batch_break_the_protocol(address: str, messages: Sequence[Any]) -> None:
    reply = exchange(address, [opening(), *messages])
    assert reply.code is grpc.StatusCode.INVALID_ARGUMENT, reply.details
    assert reply.error.kind == ERROR_KIND_PROTOCOL


def test_a_client_of_plain_flight_is_told_which_setting_to_raise(pool: LocalPool) -> None:
    with flight.connect(f"grpc://{pool.tcp_address}") as client:
        writer, reader = client.do_exchange(
            flight.FlightDescriptor.for_path("echo"), flight.FlightCallOptions(timeout=60)
        )
        row = pa.record_batch({"_0": ["x" * (MAX_MESSAGE_BYTES + 1)]})
        writer.begin(row.schema)
        writer.write_batch(row)
        writer.done_writing()
        with pytest.raises(pa.ArrowInvalid, match="send smaller batches or raise --max-message-bytes"):
            reader.read_all()
