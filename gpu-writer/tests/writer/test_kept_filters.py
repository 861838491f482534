# SPDX-License-Identifier: Apache-2.0
"""Bloom filters stay in memory until their file ends, and a client chooses their size."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_writer import RawExchange, command, running_writer, write

from updraft.v1.exchange_pb2 import ErrorKind
from updraft.v1.write_pb2 import BloomFilter, OrcOptions, ParquetOptions

MIB = 1 << 20
QUOTA_BYTES = 64 * MIB
ROWS = pa.record_batch({"n": pa.array(range(40), pa.int64())})
# Filters of 24 and of 36 MiB.
OF_A_ROW_GROUP = BloomFilter(column="n", distinct_values=10_000_000)
STRIDE = 30_000_000


def test_row_groups_whose_filters_do_not_fit_the_quota_end_their_file(tmp_path: Path) -> None:
    parquet = ParquetOptions(row_group_rows=1, bloom_filters=[OF_A_ROW_GROUP])
    with running_writer(tmp_path, quota_bytes=QUOTA_BYTES) as writer:
        with RawExchange(writer.address, ROWS.schema, command(tmp_path / "f.parquet", parquet=parquet)) as exchange:
            exchange.ask(4096)
            while not exchange.next_reply().credit:
                pass
            exchange.batch(1, ROWS)
            exchange.finish(1, ROWS.num_rows)
            exchange.half_close()
            error = exchange.last_reply().error
        assert error.kind == ErrorKind.ERROR_KIND_QUOTA
        assert "(bloom filters of a row group) until the file ends" in error.message
        assert writer.writer.quota.peak_bytes <= QUOTA_BYTES
        assert writer.writer.quota.held_bytes == 0
        write(writer, tmp_path / "other.parquet", ROWS)
    assert pq.read_table(tmp_path / "other.parquet").num_rows == ROWS.num_rows


def test_filters_that_the_rows_leave_room_for_need_no_other(tmp_path: Path) -> None:
    parquet = ParquetOptions(bloom_filters=[BloomFilter(column="n", distinct_values=1000)])
    with running_writer(tmp_path, quota_bytes=MIB) as writer, writer.client() as client:
        rows = pa.record_batch({"n": pa.array(range(40_000), pa.int64())})
        with client.create(str(tmp_path / "f.parquet"), rows.schema, parquet) as file:
            file.write(rows)
    assert pq.read_metadata(tmp_path / "f.parquet").num_rows == 40_000


def test_files_whose_filters_do_not_fit_the_quota_together_are_refused(tmp_path: Path) -> None:
    orc = OrcOptions(bloom_filter_columns=["n"], row_index_stride=STRIDE)
    with running_writer(tmp_path, quota_bytes=QUOTA_BYTES) as writer:
        with RawExchange(writer.address, ROWS.schema, command(tmp_path / "first.orc", orc=orc)) as first:
            first.ask(1024)
            while not first.next_reply().credit:
                pass
            with RawExchange(writer.address, ROWS.schema, command(tmp_path / "second.orc", orc=orc)) as second:
                error = second.last_reply().error
        assert error.kind == ErrorKind.ERROR_KIND_QUOTA
        assert "(bloom filters) until the file ends" in error.message
        assert writer.writer.quota.peak_bytes <= QUOTA_BYTES


@pytest.mark.parametrize("times", [1, 10_000])
def test_a_column_that_is_named_again_has_one_filter(tmp_path: Path, times: int) -> None:
    orc = OrcOptions(bloom_filter_columns=["n"] * times)
    with running_writer(tmp_path, quota_bytes=QUOTA_BYTES) as writer:
        with writer.client() as client, client.create(str(tmp_path / "f.orc"), ROWS.schema, orc) as file:
            file.write(ROWS)
        assert writer.writer.quota.peak_bytes < 4 * MIB
