# SPDX-License-Identifier: Apache-2.0
"""Batches larger than a message travel in parts both ways, and use no memory before they are allowed to."""

from typing import Any

import pyarrow as pa
import pytest
from pool_driver import Reply, Zygotes, echo_command, numbers, raw_exchange, requests, running_pool, split

from updraft.batch_parts import last_part, parts_before_last
from updraft.v1.exchange_pb2 import ERROR_KIND_LIMIT, ERROR_KIND_PROTOCOL, BatchPart, RequestMetadata
from updraft_server.ipc.frames import FrameKind

Frame = tuple[bytes, Any, Any]
PART_BYTES = 1 << 12
BATCH = pa.record_batch({"_0": ["a long text " * 3000, None, "b"]})
HEADER, BODY = split(BATCH.serialize())


def in_parts(batch: pa.RecordBatch, sequence: int) -> list[Frame]:
    header, body = split(batch.serialize())
    frames = [part_frame(part, data) for part, data in parts_before_last(body, PART_BYTES)]
    last = RequestMetadata(sequence=sequence).SerializeToString()
    return [*frames, (last, header, last_part(body, PART_BYTES))]


def part_frame(part: BatchPart, data: Any) -> Frame:
    return RequestMetadata(part=part).SerializeToString(), b"", data


async def outcome(zygotes: Zygotes, frames: list[Frame], **limits: Any) -> Reply:
    command = echo_command()
    command.limits.max_reply_batch_bytes = 4096
    command.limits.max_reply_batch_bytes_in_parts = 1 << 20
    given = {"max_batch_bytes": 1 << 20, "max_batch_bytes_setting": "--max-batch-bytes", **limits}
    async with running_pool(zygotes) as pool:
        return await raw_exchange(pool, BATCH.schema, frames, command, **given)


async def test_a_batch_in_parts_is_answered_in_parts(zygotes: Zygotes) -> None:
    finish = requests([BATCH, numbers(0), BATCH])[-1:]
    small = BATCH.slice(1)
    middle = requests([small])[:1]
    middle[0] = (RequestMetadata(sequence=2).SerializeToString(), *middle[0][1:])
    frames = [*in_parts(BATCH, 1), *middle, *in_parts(BATCH, 3)]
    rows = 2 * BATCH.num_rows + small.num_rows
    counts = RequestMetadata.FromString(finish[0][0])
    counts.finish.rows = rows
    reply = await outcome(zygotes, [*frames, (counts.SerializeToString(), b"", b"")])
    assert (reply.error, reply.ending) == (None, FrameKind.DONE)
    assert [batch.to_pydict() for _, batch in reply.batches] == [
        BATCH.to_pydict(),
        small.to_pydict(),
        BATCH.to_pydict(),
    ]
    assert reply.parted_batches == 2


_FIRST = part_frame(BatchPart(body_bytes=len(BODY), offset=0), BODY[:PART_BYTES])
_NUMBER = RequestMetadata(sequence=1).SerializeToString()
_WRONG: dict[str, tuple[list[Frame], str]] = {
    "a gap": (
        [_FIRST, part_frame(BatchPart(body_bytes=len(BODY), offset=PART_BYTES + 8), BODY[:8])],
        f"a part at {PART_BYTES + 8}",
    ),
    "a repeat": ([_FIRST, _FIRST], "a part at 0"),
    "another size": ([_FIRST, part_frame(BatchPart(body_bytes=1, offset=PART_BYTES), b"x")], "of 1 bytes came"),
    "a header before the last": (
        [(_FIRST[0], HEADER, _FIRST[2])],
        "that is not the last one has an Arrow header",
    ),
    "no data": ([_FIRST, part_frame(BatchPart(body_bytes=len(BODY), offset=PART_BYTES), b"")], "has no data"),
    "too much": ([part_frame(BatchPart(body_bytes=8, offset=0), b"123456789")], "9 bytes or more"),
    "too little": ([_FIRST, (_NUMBER, HEADER, BODY[PART_BYTES:-8])], "were announced"),
    "a finish inside": ([_FIRST, *requests([])], "finish came inside batch 1"),
    "an end inside": ([_FIRST], "without finish"),
    "no header": ([_FIRST, (_NUMBER, b"", BODY[PART_BYTES:])], "not an Arrow batch"),
}


@pytest.mark.parametrize("name", _WRONG)
async def test_parts_that_make_no_batch_are_the_clients_fault(zygotes: Zygotes, name: str) -> None:
    frames, words = _WRONG[name]
    reply = await outcome(zygotes, frames)
    assert reply.ending is FrameKind.FAILED
    assert reply.error.kind == ERROR_KIND_PROTOCOL
    assert words in reply.error.message


@pytest.mark.parametrize("announced", [1 << 21, 1 << 40, (1 << 64) - 1])
async def test_a_batch_beyond_the_limit_is_refused_by_its_first_part(zygotes: Zygotes, announced: int) -> None:
    first = part_frame(BatchPart(body_bytes=announced, offset=0), BODY[:PART_BYTES])
    reply = await outcome(zygotes, [first], max_batch_bytes_setting="--worker-memory-bytes of the pool")
    assert reply.error.kind == ERROR_KIND_LIMIT
    assert f"batch 1 has {announced} bytes, the limit is {1 << 20}" in reply.error.message
    assert "raise --worker-memory-bytes of the pool" in reply.error.message


async def test_a_result_beyond_the_limit_names_the_setting(zygotes: Zygotes) -> None:
    reply = await outcome(zygotes, requests([BATCH]), max_batch_bytes=8192)
    assert reply.error.kind == ERROR_KIND_LIMIT
    assert "raise --max-batch-bytes" in reply.error.message
