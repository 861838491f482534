# SPDX-License-Identifier: Apache-2.0
"""Batches larger than a message reach a file in parts, for which the writer has given credit."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_writer import NOTHING, RawExchange, RunningWriter, command, running_writer

from updraft.batch_parts import BatchParts, last_part, parts_before_last
from updraft.errors import DeadlineError, LimitError, ProtocolError, UpdraftError
from updraft.flight_data import join_flight_data
from updraft.v1.exchange_pb2 import BatchPart
from updraft.v1.write_pb2 import WriteRequestMetadata
from updraft_writer.replies import Replies

PART_BYTES = 1 << 12
_HANG_SECONDS = 60.0
BATCH = pa.record_batch({"text": ["a long text " * 3000, None, "b"]})


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWriter]:
    with running_writer(tmp_path_factory.mktemp("files"), quota_bytes=256 << 20) as running:
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
    # Larger than a message.
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


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"max_batch_bytes": 3 << 20}, "--max-batch-bytes of the writer"),
        ({"quota_bytes": 6 << 20}, "--quota-bytes of the writer to 2 times the batch"),
    ],
)
def test_an_ask_beyond_what_the_writer_takes_names_the_setting(
    tmp_path: Path, changes: dict[str, Any], setting: str
) -> None:
    with running_writer(tmp_path, max_message_bytes=1 << 20, **changes) as writer:
        with RawExchange(writer.address, BATCH.schema, command(tmp_path / "huge.parquet")) as exchange:
            exchange.ask(3 << 20)
            while not exchange.next_reply().credit:
                pass
            exchange.ask((3 << 20) + 1)
            error = exchange.last_reply().error
        assert error.kind == LimitError.kind
        assert f"batch 2 has {(3 << 20) + 1} bytes" in error.message
        assert f"raise {setting}" in error.message
        writer.becomes_empty()


def _sends_byte_after_byte(exchange: RawExchange, ended: threading.Event) -> None:
    """Send one byte in each half of the writer's time limit, for far longer than the limit."""
    for offset in range(60):
        exchange.send(_part(BatchPart(body_bytes=1 << 20, offset=offset), b"x"))
        if ended.wait(0.15):
            return


def test_a_batch_that_comes_byte_after_byte_does_not_keep_its_quota(tmp_path: Path) -> None:
    with running_writer(tmp_path, constants={"exchange.STALL_TIMEOUT_SECONDS": 0.3}) as writer:
        with RawExchange(writer.address, BATCH.schema, command(tmp_path / "slow")) as exchange:
            exchange.ask(1 << 20)
            while not exchange.next_reply().credit:
                pass
            ended = threading.Event()
            sender = threading.Thread(target=_sends_byte_after_byte, args=(exchange, ended))
            sender.start()
            error = exchange.last_reply().error
            assert sender.is_alive()
            ended.set()
            sender.join()
        assert error.kind == DeadlineError.kind
        assert "did not use its credit" in error.message
        assert "ask for credit only for a batch that can be sent at once" in error.message
        writer.becomes_empty()


LARGE = memoryview(bytes(40 << 20))
_LARGE_PARTS = [_part(part, data) for part, data in parts_before_last(LARGE, 10 << 20)]
_ENDS = {
    "a finish": join_flight_data(NOTHING, WriteRequestMetadata(finish={}).SerializeToString(), NOTHING),
    "no Arrow": join_flight_data(
        memoryview(b"none"), WriteRequestMetadata(sequence=1).SerializeToString(), last_part(LARGE, 10 << 20)
    ),
}


@pytest.mark.parametrize("end", _ENDS)
def test_a_batch_that_is_refused_takes_no_memory_while_its_client_is_told(
    writer: RunningWriter, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    held: list[int] = []
    tell = Replies.error

    async def told(replies: Replies, error: UpdraftError) -> None:
        # The thread that copied a part releases it a moment after it reports so.
        async with asyncio.timeout(_HANG_SECONDS):
            while (now := pa.total_allocated_bytes() - before) >= 1 << 20:  # noqa: ASYNC110 - nobody tells when
                await asyncio.sleep(0.01)
        held.append(now)
        await tell(replies, error)

    monkeypatch.setattr(Replies, "error", told)
    before = pa.total_allocated_bytes()
    with RawExchange(writer.address, BATCH.schema, command(writer.root / "large.parquet")) as exchange:
        exchange.ask(LARGE.nbytes)
        while not exchange.next_reply().credit:
            pass
        for message in (*_LARGE_PARTS, _ENDS[end]):
            exchange.send(message)
        assert exchange.last_reply().error.kind == ProtocolError.kind
    assert len(held) == 1
    writer.becomes_empty()


@pytest.mark.parametrize(("part_bytes", "is_alone"), [(PART_BYTES, False), (10 << 20, True)])
def test_large_parts_are_copied_where_no_other_exchange_waits(
    writer: RunningWriter, monkeypatch: pytest.MonkeyPatch, part_bytes: int, *, is_alone: bool
) -> None:
    threads: list[threading.Thread] = []
    add = BatchParts.add

    def added(parts: BatchParts, part: BatchPart, data: memoryview) -> None:
        threads.append(threading.current_thread())
        add(parts, part, data)

    monkeypatch.setattr(BatchParts, "add", added)
    with RawExchange(writer.address, BATCH.schema, command(writer.root / "large.parquet")) as exchange:
        exchange.ask(LARGE.nbytes)
        while not exchange.next_reply().credit:
            pass
        exchange.send(_part(BatchPart(body_bytes=LARGE.nbytes, offset=0), LARGE[:part_bytes]))
        exchange.send(_ENDS["a finish"])
        exchange.last_reply()
    [thread] = threads
    assert (thread is not writer._thread) == is_alone
    writer.becomes_empty()


def test_the_client_keeps_to_what_a_writer_takes_in_a_message(tmp_path: Path) -> None:
    text = "0123456789abcdef" * (5 << 16)
    rows = pa.record_batch({"text": [text, "small", text[::-1]]})
    with running_writer(tmp_path, max_message_bytes=1 << 20) as writer, writer.client() as client:
        # Whole batches up to the message size, in one message or in parts.
        sizes = [(1 << 20) - less for less in (2000, 1100, 600, 100, 0)]
        edges = [pa.record_batch({"text": ["x" * size]}) for size in sizes]
        with client.create(str(tmp_path / "file"), rows.schema) as file:
            for batch in (rows, *edges):
                file.write(batch)
    assert pq.read_table(tmp_path / "file").column("text").to_pylist() == [
        *rows.column("text").to_pylist(),
        *("x" * size for size in sizes),
    ]


def test_the_client_says_what_to_raise_for_columns_that_no_message_can_describe(tmp_path: Path) -> None:
    # The schema fits in a message, but a batch describes each column at greater length.
    columns = pa.record_batch({f"{number}": ["x"] for number in range(16_000)})
    size_bytes = pa.ipc.read_message(columns.serialize()).metadata.size
    with running_writer(tmp_path, max_message_bytes=1 << 20) as writer, writer.client() as client:
        file = client.create(str(tmp_path / "file"), columns.schema)
        with pytest.raises(LimitError, match="raise --max-message-bytes of the writer") as raised:
            file.write(columns)
        file.abort()
    assert str(size_bytes) in str(raised.value)


def test_the_client_says_what_to_raise_for_a_schema_that_is_larger_than_a_message(tmp_path: Path) -> None:
    columns = pa.schema({f"{number} {'x' * 100}": pa.string() for number in range(20_000)})
    with running_writer(tmp_path, max_message_bytes=1 << 20) as writer, writer.client() as client:
        file = client.create(str(tmp_path / "file"), columns)
        with pytest.raises(LimitError, match="raise --max-message-bytes"):
            file.finish()
