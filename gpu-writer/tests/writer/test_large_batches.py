# SPDX-License-Identifier: Apache-2.0
"""Batches that take long to decode: the event loop serves others meanwhile, and every ending releases them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_writer import WITHIN_SECONDS, Gate, RawExchange, RunningWriter, command, running_writer, write

from updraft.arrow_decoder import ArrowDecoder
from updraft.v1.exchange_pb2 import ErrorKind
from updraft.v1.write_pb2 import Pace

LARGE = pa.record_batch({"n": pa.array(range(2 << 20))})
WIDE = pa.record_batch({f"c{index}": pa.array([index]) for index in range(8192)})
SMALL = pa.record_batch({"n": pa.array(range(10))})


@contextmanager
def gated_decoding(patch: pytest.MonkeyPatch, rows: int) -> Iterator[Gate]:
    """Let decodings of batches with so many rows wait at a gate."""
    gate, decode = Gate(), ArrowDecoder.decode_batch

    def gated(decoder: ArrowDecoder, encapsulated: pa.Buffer, **options: Any) -> pa.RecordBatch:
        batch = decode(decoder, encapsulated, **options)
        if batch.num_rows == rows:
            gate.pass_through()
        return batch

    patch.setattr(ArrowDecoder, "decode_batch", gated)
    try:
        yield gate
    finally:
        gate.opened.set()


def opened(writer: RunningWriter, path: Path, batch: pa.RecordBatch, asks: int = 1) -> RawExchange:
    """Open an exchange that has sent a batch, after this many asks for it and for more."""
    exchange = RawExchange(writer.address, batch.schema, command(path, pace=Pace.PACE_SYNCHRONOUS))
    for _ in range(asks):
        exchange.ask(pa.ipc.read_message(batch.serialize()).body.size)
    while not exchange.next_reply().credit:
        pass
    exchange.batch(1, batch)
    return exchange


@pytest.mark.parametrize("batch", [LARGE, WIDE], ids=["long", "wide"])
def test_another_file_is_written_while_a_large_batch_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: pa.RecordBatch
) -> None:
    with (
        running_writer(tmp_path, quota_bytes=256 << 20) as writer,
        gated_decoding(monkeypatch, batch.num_rows) as gate,
        opened(writer, tmp_path / "large.parquet", batch) as exchange,
    ):
        assert gate.reached.wait(WITHIN_SECONDS)
        write(writer, tmp_path / "small.parquet", SMALL)
        gate.opened.set()
        exchange.finish(1, batch.num_rows)
        exchange.half_close()
        assert exchange.last_reply().receipt.rows == batch.num_rows
    assert pq.read_table(tmp_path / "large.parquet").equals(pa.table(batch))


def test_a_synchronous_file_has_no_credit_while_its_batch_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        running_writer(tmp_path, quota_bytes=256 << 20) as writer,
        gated_decoding(monkeypatch, LARGE.num_rows) as gate,
        opened(writer, tmp_path / "large.parquet", LARGE, asks=2) as exchange,
    ):
        assert gate.reached.wait(WITHIN_SECONDS)
        write(writer, tmp_path / "small.parquet", SMALL)
        # Only the batch has a reservation: the second ask waits, although the quota has room for it.
        assert writer.writer.quota.held_bytes == 2 * LARGE.nbytes
        gate.opened.set()
        exchange.finish(1, LARGE.num_rows)
        exchange.half_close()
        assert exchange.last_reply().receipt.rows == LARGE.num_rows


def test_a_cancelled_exchange_holds_its_bytes_until_the_decoding_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_writer(tmp_path, quota_bytes=256 << 20) as writer, gated_decoding(monkeypatch, LARGE.num_rows) as gate:
        with opened(writer, tmp_path / "large.parquet", LARGE) as exchange:
            assert gate.reached.wait(WITHIN_SECONDS)
            exchange.call.cancel()
            # By the time another exchange has finished, the cancellation has arrived.
            write(writer, tmp_path / "small.parquet", SMALL)
            assert writer.writer.quota.held_bytes >= 2 * LARGE.nbytes
        gate.opened.set()
        writer.becomes_empty()
        assert writer.files() == ["small.parquet"]


def test_a_large_batch_of_another_schema_is_an_error_of_the_client(tmp_path: Path) -> None:
    with (
        running_writer(tmp_path, quota_bytes=256 << 20) as writer,
        RawExchange(writer.address, SMALL.schema, command(tmp_path / "f.parquet")) as exchange,
    ):
        exchange.ask(LARGE.nbytes)
        while not exchange.next_reply().credit:
            pass
        exchange.batch(1, pa.record_batch({"a": LARGE["n"], "b": pa.nulls(len(LARGE["n"]))}))
        assert exchange.last_reply().error.kind == ErrorKind.ERROR_KIND_PROTOCOL
