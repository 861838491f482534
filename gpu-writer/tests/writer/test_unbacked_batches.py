# SPDX-License-Identifier: Apache-2.0
"""Batches that cost more memory than their bytes."""

import struct
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_writer import RawExchange, RunningWriter, command, running_writer

from updraft.v1.exchange_pb2 import ErrorKind
from updraft.v1.write_pb2 import Dictionaries, OrcOptions, ParquetOptions, WriteReplyMetadata
from updraft_writer import file_factory
from updraft_writer.open_file import OpenFile
from updraft_writer.quota import Reservation

MIB = 1 << 20
QUOTA_BYTES = 64 * MIB


def fixed_lists(rows: int, size: int) -> pa.RecordBatch:
    values = pa.nulls(rows * size)
    return pa.record_batch({"x": pa.Array.from_buffers(pa.list_(pa.null(), size), rows, [None], children=[values])})


def sent(writer: RunningWriter, path: Path, batch: pa.RecordBatch, **changes: Any) -> WriteReplyMetadata:
    """Send one batch, asking for its real size, and return the last reply."""
    with RawExchange(writer.address, batch.schema, command(path, **changes)) as exchange:
        exchange.ask(max(1024, pa.ipc.read_message(batch.serialize()).body.size))
        while not exchange.next_reply().credit:
            pass
        exchange.batch(1, batch)
        exchange.finish(1, batch.num_rows)
        exchange.half_close()
        return exchange.last_reply()


def credit_of(exchange: RawExchange) -> int:
    while not (credit := exchange.next_reply().credit):
        pass
    return credit


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
        # The credit for such values covers a quarter of the quota.
        assert writer.writer.quota.peak_bytes <= QUOTA_BYTES // 4 + MIB
        assert writer.files() == []


def test_a_batch_of_no_bytes_reserves_what_it_costs_and_is_written(tmp_path: Path) -> None:
    with running_writer(tmp_path, quota_bytes=QUOTA_BYTES) as writer:
        assert sent(writer, tmp_path / "f.parquet", fixed_lists(1000, 1000)).receipt.rows == 1000
        assert writer.writer.quota.peak_bytes >= 16 * 1000 * 1000
    assert pq.read_metadata(tmp_path / "f.parquet").num_rows == 1000


def test_row_groups_without_number_are_refused(tmp_path: Path) -> None:
    with running_writer(tmp_path, quota_bytes=QUOTA_BYTES) as writer:
        rows = pa.record_batch({"x": pa.nulls(MIB)})
        error = sent(writer, tmp_path / "f.parquet", rows, parquet=ParquetOptions(row_group_rows=1)).error
        assert error.kind == ErrorKind.ERROR_KIND_LIMIT
        assert "the file would have more than the limit of 32767 row groups" in error.message


SHARED: dict[str, pa.Array] = {
    "list views": pa.ListViewArray.from_arrays([0] * 100, [10] * 100, pa.array(range(10))),
    "a dense union": pa.UnionArray.from_dense(
        pa.array([0] * 9, pa.int8()), pa.array([0] * 9, pa.int32()), [pa.array(["x" * 99])]
    ),
}


@pytest.mark.parametrize("kind", SHARED)
def test_types_whose_rows_share_values_are_refused_by_the_name_of_their_column(tmp_path: Path, kind: str) -> None:
    with (
        running_writer(tmp_path) as writer,
        RawExchange(writer.address, pa.schema({"v": SHARED[kind].type}), command(tmp_path / "f")) as exchange,
    ):
        error = exchange.last_reply().error
        assert error.kind == ErrorKind.ERROR_KIND_WRITE_OPTION
        assert f"column 'v' has {kind}" in error.message


@pytest.mark.parametrize("in_lists", [False, True])
def test_string_views_of_one_long_string_are_refused_and_honest_ones_are_written(
    tmp_path: Path, in_lists: bool
) -> None:
    def views(rows: int, strings: int) -> pa.RecordBatch:
        whole = b"".join(b"x" * (1 << 16) for _ in range(strings))
        view = [struct.pack("<i4sii", 1 << 16, b"xxxx", 0, (index % strings) << 16) for index in range(rows)]
        array = pa.Array.from_buffers(pa.string_view(), rows, [None, pa.py_buffer(b"".join(view)), pa.py_buffer(whole)])
        offsets = pa.array(range(rows + 1), pa.int32())
        return pa.record_batch({"v": pa.ListArray.from_arrays(offsets, array) if in_lists else array})

    always = ParquetOptions(dictionaries=Dictionaries.DICTIONARIES_ALWAYS)
    with running_writer(tmp_path, quota_bytes=QUOTA_BYTES) as writer:
        error = sent(writer, tmp_path / "shared.parquet", views(100, 1), parquet=always).error
        assert error.kind == ErrorKind.ERROR_KIND_LIMIT
        assert "views of a batch stand for 6553600 bytes" in error.message
        assert sent(writer, tmp_path / "own.parquet", views(10, 10), parquet=always).receipt.rows == 10


@pytest.mark.parametrize("last_bytes", [1 << 16, -(1 << 31)], ids=["long", "negative"])
def test_views_of_one_long_string_are_refused_before_any_is_validated(tmp_path: Path, last_bytes: int) -> None:
    """Validation reads the string once for each view: for megabytes it would block the event loop for minutes."""
    # A prefix that differs from the value's shows whether the value was read.
    view = struct.pack("<i4sii", 1 << 16, b"fake", 0, 0) * 99 + struct.pack("<i4s8x", last_bytes, b"fake")
    array = pa.Array.from_buffers(pa.string_view(), 100, [None, pa.py_buffer(view), pa.py_buffer(b"\xff" * (1 << 16))])
    with running_writer(tmp_path) as writer:
        error = sent(writer, tmp_path / "f", pa.record_batch({"v": array})).error
        assert error.kind == ErrorKind.ERROR_KIND_LIMIT
        assert "views of a batch stand for" in error.message


def test_booleans_are_encoded_in_row_groups_that_bound_their_conversion(tmp_path: Path) -> None:
    rows = 1 << 20
    booleans = pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(bytes(rows // 8))])
    # A row group of this quota has 64 KiB, and converting its booleans may use four times as much.
    with running_writer(tmp_path, quota_bytes=256 << 10) as writer:
        receipt = sent(writer, tmp_path / "f.parquet", pa.record_batch({"b": booleans})).receipt
        assert (receipt.rows, receipt.footer.row_groups) == (rows, 16)


def test_names_that_a_footer_would_repeat_without_bound_are_refused(tmp_path: Path) -> None:
    batch = pa.record_batch({"n" * MIB: pa.array(range(100))})
    with running_writer(tmp_path, quota_bytes=2 * QUOTA_BYTES) as writer:
        error = sent(writer, tmp_path / "f.parquet", batch, parquet=ParquetOptions(row_group_rows=1)).error
        assert "the names of the columns take 1048576 bytes in each of 65 row groups" in error.message


def test_exchanges_with_values_without_bytes_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Each has all the credit that the quota gives before any sends a batch, and all of them are still written."""
    batch = fixed_lists(100, 10_000)
    with (
        running_writer(tmp_path, quota_bytes=QUOTA_BYTES) as writer,
        RawExchange(writer.address, batch.schema, command(tmp_path / "a.parquet")) as first,
        RawExchange(writer.address, batch.schema, command(tmp_path / "b.parquet")) as second,
    ):
        # The writer keeps a part of the quota for other tenants; it has room for three.
        for exchange, numbers in ((first, [1, 2]), (second, [1])):
            for _ in range(2):
                exchange.ask(0)
            assert [credit_of(exchange) for _ in numbers] == numbers
        for exchange, sequence in ((first, 1), (first, 2), (second, 1)):
            exchange.batch(sequence, batch)
        assert credit_of(second) == 2
        second.batch(2, batch)
        for exchange in (first, second):
            exchange.finish(2, 200)
            exchange.half_close()
        assert [exchange.last_reply().receipt.rows for exchange in (first, second)] == [200, 200]
        assert writer.writer.quota.peak_bytes <= QUOTA_BYTES


HONEST: dict[str, pa.Array] = {
    "integers": pa.array(range(1000), pa.int64()),
    "small integers": pa.array([index % 100 for index in range(1000)], pa.int8()),
    "booleans": pa.array([True, None] * 500),
    "strings": pa.array([f"s{index}" for index in range(1000)]),
    "empty strings": pa.array([""] * 1000),
    "large strings": pa.array([f"s{index}" for index in range(1000)], pa.large_string()),
    "binaries": pa.array([b"b"] * 1000),
    "fixed-size binaries": pa.array([b"bb"] * 1000, pa.binary(2)),
    "decimals": pa.array([Decimal("1.50")] * 1000, pa.decimal128(9, 2)),
    "dates": pa.array([date(2026, 1, 1)] * 1000),
    "timestamps": pa.array([0] * 1000, pa.timestamp("us", "UTC")),
    "wall clocks": pa.array([0] * 1000, pa.timestamp("us")),
    "lists": pa.array([[1, 2]] * 1000),
    "empty lists": pa.array([[]] * 1000, pa.list_(pa.int64())),
    "lists of booleans": pa.array([[True, False]] * 1000),
    "fixed-size lists": pa.array([[1, 2]] * 1000, pa.list_(pa.int64(), 2)),
    "fixed-size lists of booleans": pa.array([[True, False]] * 1000, pa.list_(pa.bool_(), 2)),
    "structs": pa.array([{"a": 1, "b": True, "s": "x"}] * 1000),
    "maps": pa.array([[("k", True)]] * 1000, pa.map_(pa.string(), pa.bool_())),
    "nulls of a type": pa.nulls(1000, pa.int64()),
}


# ORC files have no timestamps with a zone.
HONEST_FILES = [("parquet", kind) for kind in HONEST] + [("orc", kind) for kind in HONEST if kind != "timestamps"]


@pytest.mark.parametrize(("format_of", "kind"), HONEST_FILES)
def test_an_honest_batch_holds_twice_its_bytes_and_no_more(tmp_path: Path, kind: str, format_of: str) -> None:
    batch = pa.record_batch({"x": HONEST[kind]})
    body_bytes = pa.ipc.read_message(batch.serialize()).body.size
    options = {"parquet": None, "orc": OrcOptions()} if format_of == "orc" else {}
    taken: list[tuple[int, int]] = []

    class Watched(OpenFile):
        def add(self, batch: pa.RecordBatch, reservation: Reservation, **sizes: Any) -> None:
            taken.append((reservation.held_bytes, sizes["raw_bytes"]))
            super().add(batch, reservation, **sizes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_factory, "OpenFile", Watched)
        with running_writer(tmp_path, quota_bytes=2 * body_bytes) as writer:
            assert sent(writer, tmp_path / "f", batch, **options).receipt.rows == 1000
    assert taken == [(2 * body_bytes, body_bytes)]
