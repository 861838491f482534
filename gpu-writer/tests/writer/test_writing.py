# SPDX-License-Identifier: Apache-2.0
"""Writer as its clients see it, over real connections, when all goes well."""

import asyncio
import io
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pyarrow import flight, orc
from running_writer import (
    BATCH,
    BATCH_BYTES,
    SCHEMA,
    WITHIN_SECONDS,
    RawExchange,
    RunningWriter,
    command,
    gated_storage,
    read,
    running_writer,
    wait_for,
    write,
)
from spark_like import spark_table

from updraft.errors import (
    PoolUnavailableError,
    QuotaError,
    UnauthenticatedError,
    UpdraftError,
)
from updraft.service.lifecycle import Phase
from updraft.v1.exchange_pb2 import ErrorKind
from updraft.v1.write_pb2 import (
    Ask,
    OrcOptions,
    Pace,
    ParquetOptions,
    Receipt,
    WriteReplyMetadata,
    WriteRequestMetadata,
)
from updraft_writer.replies import Replies


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWriter]:
    with running_writer(tmp_path_factory.mktemp("shared")) as writer:
        yield writer


@pytest.fixture
def writer(shared: RunningWriter) -> Iterator[RunningWriter]:
    """Return the shared writer; each test must leave it empty."""
    yield shared
    shared.becomes_empty()


@pytest.mark.parametrize(("in_table", "beginning"), [(False, "._f."), (True, "f.")])
def test_an_unfinished_file_is_hidden_except_in_a_table(writer: RunningWriter, in_table: bool, beginning: str) -> None:
    path = writer.root / f"unfinished_{in_table}" / "f"
    with RawExchange(writer.address, SCHEMA, command(path, in_table=in_table)) as exchange:
        exchange.ask(BATCH_BYTES)
        exchange.next_reply()
        wait_for(lambda: path.parent.exists() and any(path.parent.iterdir()), "an unfinished file")
        (unfinished,) = path.parent.iterdir()
        exchange.call.cancel()
    assert unfinished.name.startswith(beginning)


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
    footer = pq.read_metadata(path)
    assert [column.path for column in receipt.columns] == [
        footer.schema.column(index).path
        for index in range(footer.num_columns)
        if footer.row_group(0).column(index).statistics is not None
    ]
    assert receipt.raw_bytes >= table.nbytes
    assert receipt.timings.total_milliseconds >= receipt.timings.store_milliseconds


def test_metrics_are_sums_over_files_that_are_open_at_once(writer: RunningWriter) -> None:
    def total(name: str) -> float:
        return writer.writer.metrics.registry.get_sample_value(f"updraft_writer_{name}_total") or 0.0

    before = {name: total(name) for name in ("rows", "raw_bytes", "stored_bytes")}
    with writer.client() as client:
        files = [client.create(str(writer.root / f"sum-{index}"), BATCH.schema) for index in range(2)]
        for file in files:
            file.write(BATCH)
        receipts = [file.finish() for file in files]
    writer.becomes_empty()
    sums = {name: total(name) - value for name, value in before.items()}
    assert sums == {
        "rows": sum(receipt.rows for receipt in receipts),
        "raw_bytes": sum(receipt.raw_bytes for receipt in receipts),
        "stored_bytes": sum(receipt.file_bytes for receipt in receipts),
    }


def test_a_file_counts_as_written_though_its_client_leaves_on_the_receipt(
    writer: RunningWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written() -> float:
        labels = {"format": "parquet", "encoder": "pyarrow-parquet", "outcome": "ok"}
        return writer.writer.metrics.registry.get_sample_value("updraft_writer_files_total", labels) or 0.0

    send = Replies.receipt

    async def send_and_be_cancelled(replies: Replies, receipt: Receipt) -> None:
        await send(replies, receipt)
        raise asyncio.CancelledError

    monkeypatch.setattr(Replies, "receipt", send_and_be_cancelled)
    before = written()
    path = writer.root / "left.parquet"
    with RawExchange(writer.address, SCHEMA, command(path)) as exchange:
        exchange.ask(BATCH_BYTES)
        exchange.next_reply()
        exchange.batch(1, BATCH)
        exchange.finish(1, BATCH.num_rows)
        exchange.half_close()
        wait_for(lambda: written() == before + 1, "the count of the written file")
    assert pq.read_table(path).num_rows == BATCH.num_rows


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


def test_a_synchronous_file_has_one_row_group_for_each_batch(writer: RunningWriter) -> None:
    path = writer.root / "synchronous.parquet"
    with writer.client() as client, client.create(str(path), SCHEMA, pace=Pace.PACE_SYNCHRONOUS) as file:
        for _ in range(5):
            file.write(BATCH)
    assert pq.read_metadata(path).num_row_groups == 5


def test_leave_for_the_next_batch_of_a_synchronous_file_waits_for_the_storage(
    tmp_path: Path,
) -> None:
    with running_writer(tmp_path) as writer, gated_storage(writer) as gate:
        to_do = command(tmp_path / "f", pace=Pace.PACE_SYNCHRONOUS)
        with RawExchange(writer.address, SCHEMA, to_do) as exchange:
            for _ in range(2):
                exchange.ask(BATCH_BYTES)
            assert exchange.next_reply().credit == 1
            replies: list[WriteReplyMetadata] = []
            # One reply says that the batch is stored, the other gives credit for the next.
            reading = threading.Thread(target=lambda: replies.extend(exchange.next_reply() for _ in range(2)))
            reading.start()
            exchange.batch(1, BATCH)
            assert gate.reached.wait(WITHIN_SECONDS)
            assert replies == []
            gate.opened.set()
            reading.join()
            assert (replies[-1].credit, replies[-1].stored) == (2, 1)
            exchange.batch(2, BATCH)
            exchange.finish(2, 2000)
            exchange.half_close()
            assert exchange.last_reply().receipt.batches == 2


@pytest.mark.parametrize("pace", [Pace.PACE_SYNCHRONOUS, Pace.PACE_ASYNCHRONOUS])
def test_a_synchronous_write_returns_when_its_batch_is_stored_and_an_asynchronous_one_before(
    pace: Pace, tmp_path: Path
) -> None:
    with (
        running_writer(tmp_path) as writer,
        gated_storage(writer) as gate,
        writer.client() as client,
        client.create(str(tmp_path / "f"), SCHEMA, ParquetOptions(row_group_rows=1000), pace=pace) as file,
    ):
        writing = threading.Thread(target=file.write, args=(BATCH,))
        writing.start()
        assert gate.reached.wait(WITHIN_SECONDS)
        if pace == Pace.PACE_ASYNCHRONOUS:
            writing.join(WITHIN_SECONDS)
        assert writing.is_alive() == (pace == Pace.PACE_SYNCHRONOUS)
        gate.opened.set()
        writing.join(WITHIN_SECONDS)
        assert not writing.is_alive()


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
        actions = {action.type for action in client.list_actions()}
        assert actions == {"updraft.writer_status", "updraft.check_write", "updraft.whoami"}
        [status] = client.do_action("updraft.writer_status")
    assert b'"quota_bytes": 67108864' in status.body.to_pybytes()


def test_the_drain_action_is_refused(writer: RunningWriter) -> None:
    refusal = pytest.raises(flight.FlightUnauthorizedError, match=r"SIGTERM.*--allow-remote-drain")
    with flight.connect(f"grpc://{writer.address}") as client, refusal:
        list(client.do_action("updraft.drain"))
    write(writer, writer.root / "after a refused drain", BATCH)


def test_the_drain_action_drains_where_that_is_allowed(tmp_path: Path) -> None:
    with running_writer(tmp_path, allow_remote_drain=True) as writer:
        with flight.connect(f"grpc://{writer.address}") as client:
            assert "updraft.drain" in {action.type for action in client.list_actions()}
            assert len(list(client.do_action("updraft.drain"))) == 1
        wait_for(lambda: writer.writer.lifecycle.phase is Phase.STOPPED, "the end")


def test_a_token_file_that_is_taken_away_revokes_its_tokens(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("first\n")
    root = tmp_path / "root"
    root.mkdir()
    with running_writer(root, token_file=tokens) as writer:
        with writer.client(token="first") as client, client.create(str(root / "one"), SCHEMA) as file:
            file.write(BATCH)
        tokens.unlink()

        def is_refused() -> bool:
            try:
                with writer.client(token="first") as client, client.create(str(root / "two"), SCHEMA) as file:
                    file.write(BATCH)
            except UnauthenticatedError:
                return True
            return False

        wait_for(is_refused, "the revocation")


def test_health_is_served_until_the_drain(tmp_path: Path) -> None:
    with running_writer(tmp_path, admin_listen="127.0.0.1:0") as writer, writer.client() as client:
        file = client.create(str(tmp_path / "open"), SCHEMA)
        file.write(BATCH)
        with grpc.insecure_channel(writer.settings.admin_listen) as channel:
            health = health_pb2_grpc.HealthStub(channel)

            def statuses() -> set[int]:
                names = ("", "arrow.flight.protocol.FlightService")
                return {health.Check(health_pb2.HealthCheckRequest(service=name)).status for name in names}

            assert statuses() == {health_pb2.HealthCheckResponse.SERVING}
            writer.drain()
            wait_for(lambda: statuses() == {health_pb2.HealthCheckResponse.NOT_SERVING}, "the end of health")
        file.finish()
