# SPDX-License-Identifier: Apache-2.0
"""Footer entries of chunks with NaN and with zeros; test_skipped_rows tries the readers."""

from typing import Any

import pyarrow as pa
import pytest
from device_for_tests import DeviceForTests, gpu_of
from on_gpu.gpu_files import encoder_for
from parquet_files import metadata, read, written
from skipping import NAN, OTHER_NAN

from updraft.v1.write_pb2 import BloomFilter, Dictionaries, OrcOptions, ParquetOptions
from updraft_writer.encoders.float_values import FloatValues
from updraft_writer.encoders.parquet_footer import Skipping
from updraft_writer.reason import ReasonKind

_DOUBLES = pa.float64()
ARRAYS = {
    "halves": pa.array([1, NAN], pa.float16()),
    "floats": pa.array([NAN, 1], pa.float32()),
    "doubles": pa.array([1, OTHER_NAN, None], _DOUBLES),
    "with both infinities": pa.array([float("inf"), float("-inf"), NAN], _DOUBLES),
    "of a struct": pa.array([{"x": 1.0}, None, {"x": NAN}], pa.struct({"x": _DOUBLES})),
    "of lists": pa.array([[], [1.0, NAN], None], pa.list_(_DOUBLES)),
    "of large lists": pa.array([[1.0, NAN]], pa.large_list(_DOUBLES)),
    "of fixed lists": pa.array([[1.0, NAN]], pa.list_(_DOUBLES, 2)),
    "of a map": pa.array([[("k", NAN)], [("l", 1.0)]], pa.map_(pa.string(), _DOUBLES)),
    "of a slice": pa.array([[2.0], [1.0, NAN]], pa.list_(_DOUBLES)).slice(1),
    "of a dictionary": pa.array([1.0, NAN]).dictionary_encode(),
}


def chunks(data: bytes, row_group: int = 0) -> list[Any]:
    found = metadata(data).row_group(row_group)
    return [found.column(index) for index in range(found.num_columns)]


@pytest.mark.parametrize("name", ARRAYS)
def test_a_chunk_with_nan_has_no_bounds_but_counts_its_nulls(name: str) -> None:
    table = pa.table({"before": pa.array([1] * len(ARRAYS[name])), "c": ARRAYS[name]})
    data = written(table, page_index=True)
    before, *_, chunk = chunks(data)
    assert (chunk.statistics.has_min_max, chunk.has_column_index, chunk.has_offset_index) == (False, False, True)
    assert chunk.statistics.has_null_count
    assert (before.statistics.has_min_max, before.has_column_index) == (True, True)
    assert str(read(data)["c"].to_pylist()) == str(table["c"].to_pylist())


def test_other_chunks_of_the_column_keep_their_bounds() -> None:
    tables = [pa.table({"d": [1.0, end], "e": [0.0, 2.0]}) for end in (2.0, NAN, 3.0)]
    data = written(*tables, page_index=True)
    assert [[chunk.statistics.has_min_max for chunk in chunks(data, group)] for group in range(3)] == [
        [True, True],
        [False, True],
        [True, True],
    ]
    assert [chunks(data, group)[0].has_column_index for group in range(3)] == [True, False, True]


def test_bounds_of_zero_have_both_signs() -> None:
    [chunk] = chunks(written(pa.table({"d": [0.0]})))
    assert (str(chunk.statistics.min), str(chunk.statistics.max)) == ("-0.0", "0.0")


def test_a_value_below_a_null_is_none_of_the_file() -> None:
    hidden = pa.StructArray.from_arrays([pa.array([NAN, 1.0])], names=["x"], mask=pa.array([True, False]))
    [chunk] = chunks(written(pa.table({"s": hidden})))
    assert (chunk.statistics.min, chunk.statistics.max) == (1.0, 1.0)


@pytest.mark.parametrize(("values", "has_filter"), [([1.0, 2.0], True), ([1.0, NAN], False), ([1.0, -0.0], False)])
def test_a_bloom_filter_is_left_out_where_equal_floats_have_different_bits(
    values: list[float], has_filter: bool
) -> None:
    data = written(pa.table({"d": values}), bloom_filters=[BloomFilter(column="d", distinct_values=10)])
    assert (chunks(data)[0].bloom_filter_offset is not None) == has_filter


def test_a_file_without_floats_is_left_as_it_is() -> None:
    floats = FloatValues(pa.schema({"n": pa.int64(), "t": pa.list_(pa.string())}), matched_by_bits={0, 1})
    floats.add(pa.table({"n": [0], "t": [[""]]}))
    assert floats.unusable([1]) == {}


def test_row_groups_that_are_parts_of_a_table_are_treated_alike() -> None:
    floats = FloatValues(pa.schema({"n": pa.int64(), "d": pa.float64()}), matched_by_bits=())
    for last in (1.0, NAN, 2.0):
        floats.add(pa.table({"n": [0, 0], "d": [1.0, last]}))
    nan = Skipping.BOUNDS | Skipping.BLOOM_FILTER
    assert floats.unusable([2, 1, 1, 2]) == {(1, 1): nan, (2, 1): nan}
    assert floats.unusable([3, 3]) == {(0, 1): nan, (1, 1): nan}
    assert floats.unusable([6]) == {(0, 1): nan}


def test_a_file_of_the_gpu_has_no_bounds_of_nan_either() -> None:
    tables = [pa.table({"d": [1.0] * 2000 + [end] * 2000}) for end in (2.0, NAN)]
    encoder = encoder_for(gpu_of(DeviceForTests()), tables[0].schema, ParquetOptions())
    data = b"".join([piece for table in tables for piece in encoder.write(table)] + encoder.close())
    assert encoder.on_gpu
    assert [chunks(data, group)[0].statistics.has_min_max for group in range(2)] == [True, False]


def test_floats_in_orc_stay_on_the_cpu() -> None:
    schema = pa.schema({"s": pa.struct({"x": pa.float32()})})
    encoder = encoder_for(gpu_of(DeviceForTests()), schema, OrcOptions())
    assert (encoder.on_gpu, encoder.reason.kind) == (False, ReasonKind.TYPE)
    assert "NaN" in encoder.reason.text


def test_a_chunk_with_zeros_keeps_its_dictionary() -> None:
    table = pa.table({"d": [0.0, -0.0, 1.0] * 100})
    data = written(table, dictionaries=Dictionaries.DICTIONARIES_ALWAYS)
    assert chunks(data)[0].has_dictionary_page
    assert str(read(data)["d"].to_pylist()) == str(table["d"].to_pylist())
