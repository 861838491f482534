# SPDX-License-Identifier: Apache-2.0
"""Bodies are unchanged after being split into parts and put together."""

import pyarrow as pa
import pytest

from updraft.batch_parts import BatchParts, last_part, parts_before_last
from updraft.errors import LimitError
from updraft.v1.exchange_pb2 import BatchPart


@pytest.mark.parametrize("body_bytes", [0, 1, 9, 10, 11, 20, 25])
def test_parts_cover_a_body_once_and_in_order(body_bytes: int) -> None:
    body = memoryview(bytes(range(body_bytes)))
    cut = list(parts_before_last(body, 10))
    last = last_part(body, 10)
    assert b"".join([*(bytes(data) for _, data in cut), bytes(last)]) == bytes(body)
    assert [part.offset for part, _ in cut] == list(range(0, 10 * len(cut), 10))
    assert {len(data) for _, data in cut} <= {10}
    assert len(last) > 0 or not body_bytes


def test_a_batch_is_read_where_its_parts_were_put() -> None:
    batch = pa.record_batch({"n": list(range(1000)), "t": [str(n) for n in range(1000)]})
    message = pa.ipc.read_message(batch.serialize())
    body = memoryview(message.body).cast("B")
    parts: BatchParts | None = None
    for part, data in parts_before_last(body, 1000):
        parts = parts or BatchParts(1, part, limit_bytes=1 << 20, setting="--max-batch-bytes")
        parts.add(part, data)
    assert parts is not None
    whole = parts.completed(memoryview(message.metadata).cast("B"), last_part(body, 1000))
    assert pa.ipc.read_record_batch(pa.ipc.read_message(whole), batch.schema).equals(batch)


def test_no_memory_is_taken_beyond_the_limit() -> None:
    before = pa.total_allocated_bytes()
    with pytest.raises(LimitError, match="raise --max-batch-bytes"):
        BatchParts(1, BatchPart(body_bytes=1 << 40), limit_bytes=1 << 20, setting="--max-batch-bytes")
    assert pa.total_allocated_bytes() == before


def test_a_header_that_finds_no_room_is_refused() -> None:
    parts = BatchParts(1, BatchPart(body_bytes=8), limit_bytes=8, setting="")
    with pytest.raises(LimitError, match="of Arrow metadata"):
        parts.completed(memoryview(bytes(5 << 20)), memoryview(bytes(8)))


def test_a_batch_for_which_there_is_no_memory_is_refused() -> None:
    with pytest.raises(LimitError, match="there is no memory for the"):
        BatchParts(1, BatchPart(body_bytes=1 << 62), limit_bytes=1 << 62, setting="")
