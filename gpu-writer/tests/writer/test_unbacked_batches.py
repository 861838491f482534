# SPDX-License-Identifier: Apache-2.0
"""Batches whose cost in memory is not in their bytes."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_writer import RawExchange, RunningWriter, command, running_writer

from updraft.v1.exchange_pb2 import ErrorKind
from updraft.v1.write_pb2 import ParquetOptions, WriteReplyMetadata

MIB = 1 << 20
QUOTA_BYTES = 64 * MIB


def fixed_lists(rows: int, size: int) -> pa.RecordBatch:
    values = pa.nulls(rows * size)
    return pa.record_batch({"x": pa.Array.from_buffers(pa.list_(pa.null(), size), rows, [None], children=[values])})


def sent(writer: RunningWriter, path: Path, batch: pa.RecordBatch, *, row_group_rows: int = 0) -> WriteReplyMetadata:
    with RawExchange(
        writer.address, batch.schema, command(path, parquet=ParquetOptions(row_group_rows=row_group_rows))
    ) as exchange:
        exchange.ask(1024)
        while not exchange.next_reply().credit:
            pass
        exchange.batch(1, batch)
        exchange.finish(1, batch.num_rows)
        exchange.half_close()
        return exchange.last_reply()


@pytest.mark.parametrize(
    "batch",
    [
        fixed_lists(6000, 10_000),
        pa.record_batch({"x": pa.nulls(60 * MIB)}),
        pa.record_batch({f"c{index}": pa.nulls(MIB) for index in range(60)}),
    ],
    ids=["fixed-size lists", "nulls", "columns"],
)
def test_a_batch_of_no_bytes_that_costs_more_than_the_quota_is_refused(tmp_path: Path, batch: pa.RecordBatch) -> None:
    with running_writer(tmp_path, quota_bytes=QUOTA_BYTES) as writer:
        error = sent(writer, tmp_path / "f.parquet", batch).error
        assert error.kind == ErrorKind.ERROR_KIND_LIMIT
        assert "send fewer rows at once, or shorter lists" in error.message
        assert writer.writer.quota.peak_bytes <= MIB
        assert writer.files() == []


def test_a_batch_of_no_bytes_reserves_what_it_costs_and_is_written(tmp_path: Path) -> None:
    with running_writer(tmp_path, quota_bytes=QUOTA_BYTES) as writer:
        assert sent(writer, tmp_path / "f.parquet", fixed_lists(1000, 1000)).receipt.rows == 1000
        assert writer.writer.quota.peak_bytes >= 16 * 1000 * 1000
    assert pq.read_metadata(tmp_path / "f.parquet").num_rows == 1000


def test_row_groups_without_number_are_refused(tmp_path: Path) -> None:
    with running_writer(tmp_path, quota_bytes=QUOTA_BYTES) as writer:
        error = sent(writer, tmp_path / "f.parquet", pa.record_batch({"x": pa.nulls(MIB)}), row_group_rows=1).error
        assert error.kind == ErrorKind.ERROR_KIND_LIMIT
        assert "row groups of 1 rows (row_group_rows) would be more than 32767 in one file" in error.message


def test_list_views_are_refused_by_the_name_of_their_column(tmp_path: Path) -> None:
    views = pa.ListViewArray.from_arrays([0] * 100, [10] * 100, pa.array(range(10)))
    with (
        running_writer(tmp_path) as writer,
        RawExchange(writer.address, pa.schema({"v": views.type}), command(tmp_path / "f")) as exchange,
    ):
        error = exchange.last_reply().error
        assert error.kind == ErrorKind.ERROR_KIND_WRITE_OPTION
        assert "column 'v' has list views" in error.message
