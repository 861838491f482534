# SPDX-License-Identifier: Apache-2.0
"""Batches that are larger than a message reach a file in parts, for which the writer has given credit."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_writer import NOTHING, RawExchange, RunningWriter, command, running_writer

from updraft.batch_parts import last_part, parts_before_last
from updraft.errors import LimitError, ProtocolError
from updraft.flight_data import join_flight_data
from updraft.v1.exchange_pb2 import BatchPart
from updraft.v1.write_pb2 import WriteRequestMetadata

PART_BYTES = 1 << 12
BATCH = pa.record_batch({"text": ["a long text " * 3000, None, "b"]})


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWriter]:
    with running_writer(tmp_path_factory.mktemp("files")) as running:
        yield running


def _message_of(batch: pa.RecordBatch) -> tuple[memoryview, memoryview]:
    message = pa.ipc.read_message(batch.serialize())
    return memoryview(message.metadata).cast("B"), memoryview(message.body).cast("B")


HEADER, BODY = _message_of(BATCH)


def _part(part: BatchPart, data: Any, header: memoryview = NOTHING) -> bytes:
    return join_flight_data(header, WriteRequestMetadata(part=part).SerializeToString(), memoryview(data))


def _last(sequence: int, data: memoryview) -> bytes:
    return join_flight_data(HEADER, WriteRequestMetadata(sequence=sequence).SerializeToString(), data)


def _messages(sequence: int) -> Iterator[bytes]:
    for part, data in parts_before_last(BODY, PART_BYTES):
        yield _part(part, data)
    yield _last(sequence, last_part(BODY, PART_BYTES))


def test_parts_become_the_rows_of_a_file(writer: RunningWriter) -> None:
    path = writer.root / "parts.parquet"
    with RawExchange(writer.address, BATCH.schema, command(path)) as exchange:
        for sequence in (1, 2):
            exchange.ask(len(BODY))
            for message in _messages(sequence):
                exchange.send(message)
        exchange.finish(2, 2 * BATCH.num_rows)
        exchange.half_close()
        receipt = exchange.last_reply().receipt
    assert (receipt.batches, receipt.raw_bytes) == (2, 2 * len(BODY))
    assert pq.read_table(path).column("text").to_pylist() == 2 * BATCH.column("text").to_pylist()
    writer.becomes_empty()


def test_the_client_sends_a_large_row_in_parts(writer: RunningWriter) -> None:
    # Beyond the size of a message.
    text = "0123456789abcdef" * (65 << 16)
    path = writer.root / "large.parquet"
    with writer.client() as client, client.create(str(path), BATCH.schema) as file:
        file.write(pa.record_batch({"text": [text, "small"]}))
    assert pq.read_table(path).column("text").to_pylist() == [text, "small"]
    writer.becomes_empty()


_FIRST = _part(BatchPart(body_bytes=len(BODY), offset=0), BODY[:PART_BYTES])
_WRONG = {
    "a gap": ([_FIRST, _part(BatchPart(body_bytes=len(BODY), offset=8), BODY[:8])], "a part at 8"),
    "another size": ([_FIRST, _part(BatchPart(body_bytes=9, offset=PART_BYTES), b"x")], "of 9 bytes came"),
    "no data": ([_FIRST, _part(BatchPart(body_bytes=len(BODY), offset=PART_BYTES), b"")], "has no data"),
    "too little": ([_FIRST, _last(1, BODY[PART_BYTES:-8])], "were announced"),
    "too much": ([_FIRST, _last(1, BODY)], "or more"),
    "a header before the last": (
        [_part(BatchPart(body_bytes=len(BODY), offset=0), BODY[:8], HEADER)],
        "has Arrow metadata",
    ),
    "more than its credit": (
        [_part(BatchPart(body_bytes=1 << 40, offset=0), BODY[:8])],
        "which is more than its credit covers",
    ),
}


@pytest.mark.parametrize("name", _WRONG)
def test_parts_that_make_no_batch_end_the_file(writer: RunningWriter, name: str) -> None:
    messages, words = _WRONG[name]
    path = writer.root / "wrong.parquet"
    with RawExchange(writer.address, BATCH.schema, command(path)) as exchange:
        exchange.ask(len(BODY))
        while not exchange.next_reply().credit:
            pass
        for message in messages:
            exchange.send(message)
        error = exchange.last_reply().error
    assert error.kind == ProtocolError.kind
    assert words in error.message
    writer.becomes_empty()
    assert not path.exists()


def test_a_part_without_credit_takes_no_memory(writer: RunningWriter) -> None:
    with RawExchange(writer.address, BATCH.schema, command(writer.root / "eager.parquet")) as exchange:
        exchange.send(_FIRST)
        error = exchange.last_reply().error
    assert error.kind == ProtocolError.kind
    assert "came without credit" in error.message


def test_a_finish_inside_a_batch_is_no_end(writer: RunningWriter) -> None:
    path = writer.root / "half.parquet"
    with RawExchange(writer.address, BATCH.schema, command(path)) as exchange:
        exchange.ask(len(BODY))
        while not exchange.next_reply().credit:
            pass
        exchange.send(_FIRST)
        exchange.finish(0, 0)
        error = exchange.last_reply().error
    assert error.kind == ProtocolError.kind
    assert "finish came inside a batch" in error.message
    writer.becomes_empty()
    assert not path.exists()


def test_an_ask_beyond_what_the_writer_takes_names_the_setting(writer: RunningWriter) -> None:
    with RawExchange(writer.address, BATCH.schema, command(writer.root / "huge.parquet")) as exchange:
        exchange.ask((1 << 30) + 1)
        error = exchange.last_reply().error
    assert error.kind == LimitError.kind
    assert f"batch 1 has {(1 << 30) + 1} bytes" in error.message
    assert "raise --max-batch-bytes of the writer" in error.message
