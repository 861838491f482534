# SPDX-License-Identifier: Apache-2.0
"""The writer as its clients see it, over real connections."""

import errno
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pyarrow import flight, orc
from running_writer import RawExchange, RunningWriter, command, running_writer, wait_for
from spark_like import spark_table

from updraft.errors import (
    DeadlineError,
    EncodeError,
    LimitError,
    PoolUnavailableError,
    ProtocolError,
    QuotaError,
    SinkError,
    UnauthenticatedError,
    UpdraftError,
    VersionMismatchError,
    WriteOptionError,
    WriteRefusedError,
)
from updraft.v1.exchange_pb2 import ErrorKind
from updraft.v1.write_pb2 import (
    Ask,
    Codec,
    Compression,
    Delivery,
    OrcOptions,
    Pace,
    ParquetOptions,
    WriteReplyMetadata,
    WriteRequestMetadata,
)
from updraft_writer.sinks.local import LocalStorage

SCHEMA = pa.schema({"n": pa.int64()})
BATCH = pa.record_batch({"n": pa.array(range(1000), pa.int64())})
BATCH_BYTES = 8000


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWriter]:
    with running_writer(tmp_path_factory.mktemp("shared")) as writer:
        yield writer


@pytest.fixture
def writer(shared: RunningWriter) -> Iterator[RunningWriter]:
    """The shared writer; each test has to leave it empty."""
    yield shared
    shared.becomes_empty()


def write(writer: RunningWriter, path: Path, *rows: pa.RecordBatch | pa.Table, then: Exception | None = None) -> None:
    """Write a file through a client; with `then` the producer fails after the last rows."""
    with writer.client() as client, client.create(str(path), rows[0].schema) as file:
        for data in rows:
            file.write(data)
        if then is not None:
            raise then


def read(path: Path) -> list[Any]:
    rows: list[Any] = pq.read_table(path)["n"].to_pylist()
    return rows


def test_a_file_is_written_published_and_proven_by_its_receipt(writer: RunningWriter) -> None:
    table, path = spark_table(5000), writer.root / "a/b/part-0.parquet"
    with writer.client() as client, client.create(str(path), table.schema) as file:
        for _ in range(4):
            file.write(table)
    receipt = file.receipt
    assert pq.read_metadata(path).num_rows == receipt.rows == receipt.footer.rows == 20_000
    assert path.stat().st_size == receipt.file_bytes
    assert pq.read_metadata(path).num_row_groups == receipt.footer.row_groups
    assert (receipt.path, receipt.encoder) == (str(path), "pyarrow-parquet")
    assert receipt.encoder_reason.startswith("cpu: ")
    assert receipt.raw_bytes >= table.nbytes
    assert receipt.timings.total_milliseconds >= receipt.timings.store_milliseconds


def test_orc_is_written_as_well(writer: RunningWriter) -> None:
    path = writer.root / "part.orc"
    with writer.client() as client, client.create(str(path), SCHEMA, OrcOptions()) as file:
        file.write(BATCH)
    assert orc.ORCFile(path).read()["n"].to_pylist() == BATCH["n"].to_pylist()
    assert file.receipt.encoder == "pyarrow-orc"


def test_a_file_without_rows_has_its_schema(writer: RunningWriter) -> None:
    path = writer.root / "empty.parquet"
    with writer.client() as client, client.create(str(path), SCHEMA):
        pass
    assert pq.read_table(path).num_rows == 0


def test_encoded_bytes_come_back_when_the_client_stores_them(writer: RunningWriter) -> None:
    kept, table = io.BytesIO(), spark_table(50_000)
    with writer.client() as client, client.create("named for logs", table.schema, into=kept) as file:
        file.write(table)
    assert file.receipt.file_bytes == len(kept.getvalue())
    assert pq.read_metadata(pa.BufferReader(kept.getvalue())).num_rows == 50_000


def test_large_tables_are_cut_to_batches_that_the_writer_takes(tmp_path: Path) -> None:
    table = pa.table({"n": pa.arange(0, 1_000_000, 1)})
    with running_writer(tmp_path, max_message_bytes=1 << 20) as writer, writer.client() as client:
        with client.create(str(tmp_path / "f"), SCHEMA, max_batch_bytes=500_000) as file:
            file.write(table)
        assert file.receipt.batches > 10
    assert read(tmp_path / "f") == list(range(1_000_000))


def test_a_failed_producer_leaves_no_file(writer: RunningWriter) -> None:
    path = writer.root / "unwanted.parquet"
    with pytest.raises(ZeroDivisionError):
        write(writer, path, BATCH, then=ZeroDivisionError())
    writer.becomes_empty()
    assert not path.exists()


def test_a_client_that_vanishes_leaves_no_file(writer: RunningWriter) -> None:
    path = writer.root / "vanished.parquet"
    client = writer.client()
    file = client.create(str(path), SCHEMA)
    file.write(BATCH)
    client.close()
    with pytest.raises(UpdraftError):
        file.finish()
    writer.becomes_empty()
    assert not path.exists()


def test_an_end_of_stream_without_finish_leaves_no_file(writer: RunningWriter) -> None:
    path = writer.root / "unfinished.parquet"
    with RawExchange(writer.address, SCHEMA, command(path)) as exchange:
        exchange.ask(BATCH_BYTES)
        assert exchange.next_reply().credit == 1
        exchange.batch(1, BATCH)
        exchange.half_close()
        assert exchange.last_reply().error.kind == ErrorKind.ERROR_KIND_PROTOCOL
    writer.becomes_empty()
    assert not path.exists()


def test_what_was_at_the_path_stays_when_the_new_file_fails(writer: RunningWriter) -> None:
    path = writer.root / "kept.parquet"
    write(writer, path, BATCH)
    with pytest.raises(RuntimeError):
        write(writer, path, BATCH, BATCH, then=RuntimeError())
    assert read(path) == BATCH["n"].to_pylist()


def broken(exchange: RawExchange, how: str) -> None:
    """Break the protocol in one way, after one good batch."""
    exchange.ask(BATCH_BYTES)
    exchange.next_reply()
    exchange.batch(1, BATCH)
    match how:
        case "a batch without leave":
            exchange.batch(2, BATCH)
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
        ("a batch without leave", "without leave"),
        ("a batch larger than asked for", "8000 bytes, which is more than leave was asked for"),
        ("a gap in the numbers", "batch 3 came where batch 2 was expected"),
        ("another schema", "batch 2 has 2 arrays where its schema has 1"),
        ("wrong counts", "2 batches with 1000 rows, but 1 with 1000"),
        ("garbage", "not a protobuf message"),
        ("no event", "neither an ask nor a batch"),
        ("more asks than allowed", "more than 16 asks"),
        ("a message after the finish", "after the one that says finish"),
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
    assert "--max-message-bytes" in error.message


def test_a_value_that_cannot_be_encoded_is_the_error_of_the_data(writer: RunningWriter) -> None:
    old = pa.record_batch({"d": pa.array([-200_000], pa.int32()).cast(pa.date32())})
    with pytest.raises(EncodeError, match="column 'd' has a date before 1582"):
        write(writer, writer.root / "old", old)


class BrokenStorage(LocalStorage):
    """Fails at its second piece, or when it is opened."""

    number = errno.ENOSPC
    fail_at = "write"
    pieces = 0

    def open(self) -> None:
        if self.fail_at == "open":
            raise OSError(self.number, os.strerror(self.number))
        super().open()

    def write(self, piece: bytes) -> None:
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
    monkeypatch.setattr(writer.writer.factory, "storage", lambda path: BrokenStorage(Path(path)))
    path = writer.root / "failed.parquet"
    with pytest.raises(SinkError, match=os.strerror(number)):
        write(writer, path, *[pa.table({"n": pa.arange(0, 50_000, 1)})] * 300)
    writer.becomes_empty()
    assert not path.exists()


class GatedStorage(LocalStorage):
    """Holds every piece back until the test opens the gate."""

    gate = threading.Event()
    at_the_gate = threading.Event()

    def write(self, piece: bytes) -> None:
        self.at_the_gate.set()
        assert self.gate.wait(30)
        super().write(piece)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    gate = threading.Event()
    monkeypatch.setattr(GatedStorage, "gate", gate)
    monkeypatch.setattr(GatedStorage, "at_the_gate", threading.Event())
    yield gate
    gate.set()


def gated(writer: RunningWriter) -> None:
    writer.writer.factory.storage = lambda path: GatedStorage(Path(path))


def test_who_finds_no_room_in_time_gets_a_typed_error_and_the_others_go_on(
    tmp_path: Path, gate: threading.Event
) -> None:
    with running_writer(tmp_path, quota_bytes=100_000, admission_timeout_seconds=0.3) as writer:
        gated(writer)
        with RawExchange(writer.address, SCHEMA, command(tmp_path / "first")) as first, writer.client() as client:
            first.ask(48_000)
            assert first.next_reply().credit == 1
            with pytest.raises(QuotaError, match="no room for 16000 bytes"):
                client.create(str(tmp_path / "second"), SCHEMA).write(BATCH)
            first.batch(1, BATCH)
            first.finish(1, 1000)
            first.half_close()
            gate.set()
            assert first.last_reply().receipt.rows == 1000


def test_a_client_that_keeps_its_leave_to_itself_is_ended_and_its_bytes_are_free(tmp_path: Path) -> None:
    with running_writer(tmp_path, quota_bytes=100_000, stall_timeout_seconds=0.2) as writer:
        with RawExchange(writer.address, SCHEMA, command(tmp_path / "stalled")) as exchange:
            exchange.ask(90_000)
            error = exchange.last_reply().error
        assert error.kind == DeadlineError.kind
        assert "did not use its leave" in error.message


def test_a_client_that_does_not_read_its_file_is_ended(tmp_path: Path) -> None:
    with running_writer(tmp_path, stall_timeout_seconds=1.0) as writer:
        to_do = command("returned", delivery=Delivery.DELIVERY_RETURN)
        batch = pa.RecordBatch.from_arrays(
            [pa.Array.from_buffers(pa.int64(), 1_000_000, [None, pa.py_buffer(os.urandom(8_000_000))])], schema=SCHEMA
        )
        with RawExchange(writer.address, SCHEMA, to_do) as exchange:
            exchange.ask(8_000_000)
            exchange.next_reply()
            exchange.batch(1, batch)
            files = writer.writer.metrics.files.labels("parquet", "pyarrow-parquet", "DeadlineError")
            wait_for(lambda: files._value.get() == 1, "the end of the exchange")


def test_a_synchronous_file_has_one_row_group_for_each_batch(writer: RunningWriter) -> None:
    path = writer.root / "synchronous.parquet"
    with writer.client() as client, client.create(str(path), SCHEMA, pace=Pace.PACE_SYNCHRONOUS) as file:
        for _ in range(5):
            file.write(BATCH)
    assert pq.read_metadata(path).num_row_groups == 5


def test_leave_for_the_next_batch_of_a_synchronous_file_waits_for_the_storage(
    tmp_path: Path, gate: threading.Event
) -> None:
    with running_writer(tmp_path) as writer:
        gated(writer)
        to_do = command(tmp_path / "f", pace=Pace.PACE_SYNCHRONOUS)
        with RawExchange(writer.address, SCHEMA, to_do) as exchange:
            for _ in range(2):
                exchange.ask(BATCH_BYTES)
            assert exchange.next_reply().credit == 1
            replies: list[WriteReplyMetadata] = []
            reading = threading.Thread(target=lambda: replies.append(exchange.next_reply()))
            reading.start()
            exchange.batch(1, BATCH)
            assert GatedStorage.at_the_gate.wait(30)
            assert replies == []
            gate.set()
            reading.join()
            assert replies[0].credit == 2
            exchange.batch(2, BATCH)
            exchange.finish(2, 2000)
            exchange.half_close()
            assert exchange.last_reply().receipt.batches == 2


def test_more_files_than_allowed_are_refused_with_a_hint(tmp_path: Path) -> None:
    with (
        running_writer(tmp_path, max_open_files=1) as writer,
        RawExchange(writer.address, SCHEMA, command(tmp_path / "first")) as first,
    ):
        first.ask(1)
        first.next_reply()
        with pytest.raises(QuotaError, match="--max-open-files"):
            write(writer, tmp_path / "second", BATCH)


def test_a_draining_writer_finishes_open_files_and_opens_no_new_ones(tmp_path: Path) -> None:
    with running_writer(tmp_path) as writer, writer.client() as client:
        file = client.create(str(tmp_path / "open"), SCHEMA)
        file.write(BATCH)
        writer.drain()
        wait_for(lambda: writer.writer.lifecycle.phase.value == "draining", "the drain")
        with pytest.raises(PoolUnavailableError, match="draining"):
            client.create(str(tmp_path / "new"), SCHEMA).finish()
        file.write(BATCH)
        file.finish()
        writer.stop()
    assert read(tmp_path / "open") == 2 * BATCH["n"].to_pylist()


def test_files_that_a_drain_cannot_wait_for_end_with_an_error_and_leave_nothing(tmp_path: Path) -> None:
    with running_writer(tmp_path, drain_timeout_seconds=0.2) as writer, writer.client() as client:
        file = client.create(str(tmp_path / "open"), SCHEMA)
        file.write(BATCH)
        writer.stop()
        with pytest.raises(PoolUnavailableError):
            file.finish()
        assert writer.files() == []


def test_a_token_is_needed_where_there_are_tokens(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("secret\n")
    root = tmp_path / "data"
    with running_writer(root, token_file=tokens) as writer:
        with writer.client() as client, pytest.raises(UnauthenticatedError):
            client.create(str(root / "f"), SCHEMA).finish()
        with writer.client(token="secret") as client, client.create(str(root / "f"), SCHEMA):
            pass


def test_any_flight_client_can_write_a_file(writer: RunningWriter) -> None:
    path = writer.root / "plain.parquet"
    with flight.connect(f"grpc://{writer.address}") as client:
        descriptor = flight.FlightDescriptor.for_command(command(path).SerializeToString())
        sender, reader = client.do_exchange(descriptor)
        sender.begin(SCHEMA)
        sender.write_metadata(WriteRequestMetadata(ask=Ask(body_bytes=BATCH_BYTES)).SerializeToString())
        assert WriteReplyMetadata.FromString(reader.read_chunk().app_metadata.to_pybytes()).credit == 1
        sender.write_with_metadata(BATCH, WriteRequestMetadata(sequence=1).SerializeToString())
        sender.write_metadata(WriteRequestMetadata(finish={"batches": 1, "rows": 1000}).SerializeToString())
        sender.done_writing()
        receipt = WriteReplyMetadata.FromString(reader.read_chunk().app_metadata.to_pybytes()).receipt
        sender.close()
    assert receipt.rows == 1000
    assert read(path) == BATCH["n"].to_pylist()


def test_the_state_of_a_writer_can_be_asked_for(writer: RunningWriter) -> None:
    with flight.connect(f"grpc://{writer.address}") as client:
        assert {action.type for action in client.list_actions()} == {"updraft.writer_status", "updraft.drain"}
        [status] = client.do_action("updraft.writer_status")
    assert b'"quota_bytes": 67108864' in status.body.to_pybytes()


def test_health_is_served_until_the_drain(tmp_path: Path) -> None:
    with running_writer(tmp_path, admin_listen="127.0.0.1:0") as writer, writer.client() as client:
        file = client.create(str(tmp_path / "open"), SCHEMA)
        file.write(BATCH)
        with grpc.insecure_channel(writer.settings.admin_listen) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for name in ("", "arrow.flight.protocol.FlightService"):
                request = health_pb2.HealthCheckRequest(service=name)
                assert health.Check(request).status == health_pb2.HealthCheckResponse.SERVING
            writer.drain()
            wait_for(
                lambda: health.Check(request).status == health_pb2.HealthCheckResponse.NOT_SERVING, "the end of health"
            )
        file.finish()
