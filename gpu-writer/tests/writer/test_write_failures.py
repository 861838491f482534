# SPDX-License-Identifier: Apache-2.0
"""Writer as its clients see it, over real connections, when a client or a storage fails."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from running_writer import (
    BATCH,
    BATCH_BYTES,
    NOTHING,
    SCHEMA,
    RawExchange,
    RunningWriter,
    command,
    running_writer,
    wait_for,
    write,
)

from updraft.errors import (
    DeadlineError,
    EncodeError,
    LimitError,
    ProtocolError,
    QuotaError,
    SinkError,
    VersionMismatchError,
    WriteOptionError,
    WriteRefusedError,
)
from updraft.flight_data import join_flight_data
from updraft.v1.exchange_pb2 import ErrorKind
from updraft.v1.write_pb2 import (
    Ask,
    Codec,
    Compression,
    Delivery,
    Dictionaries,
    OrcOptions,
    ParquetOptions,
    Rebase,
    WriteRequestMetadata,
)
from updraft_writer.pieces import Piece
from updraft_writer.sinks.local import LocalStorage


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWriter]:
    with running_writer(tmp_path_factory.mktemp("shared")) as writer:
        yield writer


@pytest.fixture
def writer(shared: RunningWriter) -> Iterator[RunningWriter]:
    """Return the shared writer; each test must leave it empty."""
    yield shared
    shared.becomes_empty()


def broken(exchange: RawExchange, how: str) -> None:
    """Break the protocol in one way, after one good batch."""
    exchange.ask(BATCH_BYTES)
    exchange.next_reply()
    exchange.batch(1, BATCH)
    match how:
        case "a batch without credit":
            exchange.batch(2, BATCH)
        case "garbage without credit":
            exchange.send(join_flight_data(memoryview(b"\xff" * 100), b"\x10\x02", memoryview(b"\xff" * 100)))
        case "data with an ask":
            ask = WriteRequestMetadata(ask=Ask(body_bytes=BATCH_BYTES)).SerializeToString()
            exchange.send(join_flight_data(NOTHING, ask, memoryview(bytes(BATCH_BYTES))))
        case "a batch larger than asked for":
            exchange.ask(BATCH_BYTES - 8)
            exchange.next_reply()
            exchange.batch(2, BATCH)
        case "a gap in the numbers":
            exchange.ask(BATCH_BYTES)
            exchange.next_reply()
            exchange.batch(3, BATCH)
        case "another schema":
            exchange.ask(BATCH_BYTES)
            exchange.next_reply()
            exchange.batch(2, pa.record_batch({"a": [1], "b": [2]}))
        case "wrong counts":
            exchange.finish(2, 1000)
            exchange.half_close()
        case "garbage":
            exchange.send(b"\xff\xff")
        case "no event":
            exchange.send(b"")
        case "more asks than allowed":
            for _ in range(40):
                exchange.say(ask=Ask(body_bytes=50 << 20))
        case "a message after the finish":
            exchange.finish(1, 1000)
            exchange.ask(1)
            exchange.half_close()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("a batch without credit", "without credit"),
        ("garbage without credit", "batch 2 came without credit"),
        ("data with an ask", "a message that is not a batch (ask) has data"),
        ("a batch larger than asked for", "8000 bytes, which is more than its credit covers"),
        ("a gap in the numbers", "batch 3 came where batch 2 was expected"),
        ("another schema", "batch 2 has 2 arrays where its schema has 1"),
        ("wrong counts", "2 batches with 1000 rows, but 1 with 1000"),
        ("garbage", "not a protobuf message"),
        ("no event", "none of ask, batch, finish and abort"),
        ("more asks than allowed", "more than 16 asks"),
        ("a message after the finish", "arrived after finish"),
    ],
)
def test_who_breaks_the_protocol_gets_told_and_no_file(writer: RunningWriter, how: str, says: str) -> None:
    path = writer.root / "broken.parquet"
    with RawExchange(writer.address, SCHEMA, command(path)) as exchange:
        broken(exchange, how)
        error = exchange.last_reply().error
    assert error.kind == ErrorKind.ERROR_KIND_PROTOCOL
    assert says in error.message
    writer.becomes_empty()
    assert not path.exists()


def test_metadata_that_no_credit_covers_is_refused_before_it_is_decoded(writer: RunningWriter) -> None:
    with RawExchange(writer.address, SCHEMA, command(writer.root / "broken.parquet")) as exchange:
        exchange.ask(BATCH_BYTES)
        exchange.next_reply()
        sequence = WriteRequestMetadata(sequence=1).SerializeToString()
        exchange.send(join_flight_data(memoryview(bytes((4 << 20) + 1)), sequence, NOTHING))
        error = exchange.last_reply().error
    assert error.kind == ErrorKind.ERROR_KIND_LIMIT
    assert "batch 1 has 4194305 bytes of Arrow metadata, the limit is 4194304" in error.message


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"protocol_version": 2}, VersionMismatchError.kind),
        ({"delivery": Delivery.DELIVERY_UNSPECIFIED}, ProtocolError.kind),
        ({"parquet": None}, WriteOptionError.kind),
        ({"path": "/etc/passwd"}, WriteRefusedError.kind),
        ({"parquet": ParquetOptions(compression=Compression(codec=Codec.CODEC_LZ4, level=1))}, WriteOptionError.kind),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_data(
    writer: RunningWriter, changes: dict[str, Any], kind: Any
) -> None:
    with RawExchange(writer.address, SCHEMA, command(**{"path": writer.root / "refused", **changes})) as exchange:
        assert exchange.last_reply().error.kind == kind


def test_a_timestamp_with_a_time_zone_is_refused_in_orc_before_any_data(writer: RunningWriter) -> None:
    path, schema = writer.root / "refused.orc", pa.schema({"at": pa.timestamp("us", "UTC")})
    with RawExchange(writer.address, schema, command(path, parquet=None, orc=OrcOptions())) as exchange:
        error = exchange.last_reply().error
    assert error.kind == WriteOptionError.kind
    assert "column 'at' contains timestamp[us, tz=UTC]" in error.message
    assert not path.exists()


def test_a_schema_that_changes_is_refused_by_the_client_itself(writer: RunningWriter) -> None:
    with (
        writer.client() as client,
        pytest.raises(ValueError, match="the schema has changed"),
        client.create(str(writer.root / "changed"), SCHEMA) as file,
    ):
        file.write(pa.record_batch({"other": [1]}))


def test_a_batch_beyond_the_hard_limit_is_a_clear_error(writer: RunningWriter) -> None:
    with RawExchange(writer.address, SCHEMA, command(writer.root / "large")) as exchange:
        exchange.ask(1 << 40)
        error = exchange.last_reply().error
    assert error.kind == LimitError.kind
    assert "raise --quota-bytes of the writer to 2 times the batch" in error.message


def test_a_value_that_cannot_be_encoded_is_the_error_of_the_data(writer: RunningWriter) -> None:
    old = pa.record_batch({"d": pa.array([-200_000], pa.int32()).cast(pa.date32())})
    options = ParquetOptions(rebase=Rebase.REBASE_EXCEPTION)
    with (
        writer.client() as client,
        pytest.raises(EncodeError, match="column 'd' has a date before 1582"),
        client.create(str(writer.root / "old"), old.schema, options) as file,
    ):
        file.write(old)


class BrokenStorage(LocalStorage):
    """Storage that fails at its second piece, or when it is opened."""

    number = errno.ENOSPC
    fail_at = "write"
    pieces = 0

    def open(self) -> None:
        if self.fail_at == "open":
            raise OSError(self.number, os.strerror(self.number))
        super().open()

    def write(self, piece: Piece) -> None:
        self.pieces += 1
        if self.fail_at == "write" and self.pieces > 1:
            raise OSError(self.number, os.strerror(self.number))
        super().write(piece)

    def publish(self) -> None:
        if self.fail_at == "publish":
            raise OSError(self.number, os.strerror(self.number))
        super().publish()


@pytest.mark.parametrize("fail_at", ["open", "write", "publish"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_storage_that_fails_at_any_step_leaves_no_file_and_says_why(
    writer: RunningWriter, monkeypatch: pytest.MonkeyPatch, fail_at: str, number: int
) -> None:
    monkeypatch.setattr(BrokenStorage, "fail_at", fail_at)
    monkeypatch.setattr(BrokenStorage, "number", number)
    monkeypatch.setattr(writer.writer.factory, "storage", lambda path, *_, **__: BrokenStorage(Path(path)))
    path = writer.root / "failed.parquet"
    with pytest.raises(SinkError, match=os.strerror(number)):
        write(writer, path, *[pa.table({"n": pa.arange(0, 50_000, 1)})] * 300)
    writer.becomes_empty()
    assert not path.exists()


def test_who_finds_no_room_in_time_gets_a_typed_error_and_the_others_go_on(tmp_path: Path) -> None:
    with (
        running_writer(tmp_path, constants={"quota.ADMISSION_TIMEOUT_SECONDS": 0.3}, quota_bytes=100_000) as writer,
        RawExchange(writer.address, SCHEMA, command(tmp_path / "first")) as first,
        writer.client() as client,
    ):
        first.ask(48_000)
        assert first.next_reply().credit == 1
        with pytest.raises(QuotaError, match="no room for 16000 bytes"):
            client.create(str(tmp_path / "second"), SCHEMA).write(BATCH)
        first.batch(1, BATCH)
        first.finish(1, 1000)
        first.half_close()
        assert first.last_reply().receipt.rows == 1000


def test_a_client_that_keeps_its_credit_to_itself_is_ended_and_its_bytes_are_free(tmp_path: Path) -> None:
    with running_writer(tmp_path, constants={"exchange.STALL_TIMEOUT_SECONDS": 0.2}, quota_bytes=100_000) as writer:
        with RawExchange(writer.address, SCHEMA, command(tmp_path / "stalled")) as exchange:
            exchange.ask(90_000)
            error = exchange.last_reply().error
        assert error.kind == DeadlineError.kind
        assert "did not use its credit" in error.message


def test_a_client_that_does_not_read_its_file_is_ended(tmp_path: Path) -> None:
    # Far more than the buffers of a connection hold.
    data = os.urandom(1 << 20) * 40
    batch = pa.RecordBatch.from_arrays(
        [pa.Array.from_buffers(pa.int64(), len(data) // 8, [None, pa.py_buffer(data)])], schema=SCHEMA
    )
    as_it_is = ParquetOptions(
        compression=Compression(codec=Codec.CODEC_NONE), dictionaries=Dictionaries.DICTIONARIES_NEVER
    )
    to_do = command("returned", delivery=Delivery.DELIVERY_RETURN, parquet=as_it_is)
    with (
        running_writer(tmp_path, client_silence_seconds=2.5) as writer,
        RawExchange(writer.address, SCHEMA, to_do) as exchange,
    ):
        exchange.ask(len(data))
        exchange.next_reply()
        exchange.batch(1, batch)
        files = writer.writer.metrics.files.labels("parquet", "pyarrow-parquet", "DeadlineError")
        wait_for(lambda: files._value.get() == 1, "the end of the exchange")
        exchange.last_reply()
        assert "--client-silence-seconds" in exchange.call.details()
