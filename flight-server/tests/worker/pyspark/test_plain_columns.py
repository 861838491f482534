# SPDX-License-Identifier: Apache-2.0
"""Fast conversions between Arrow and pandas give the same results as PySpark's own, or leave the column to them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import types

from updraft_server.worker.pyspark.adapters import minor_version
from updraft_server.worker.pyspark.plain_columns import plain_batch, plain_series, plain_series_with_own_name

pytestmark = pytest.mark.skipif(
    minor_version(pyspark.__version__) < (4, 2), reason="before 4.2 PySpark converts pandas elsewhere"
)
# Spark 3.5 does not have this module.
conversion = pytest.importorskip("pyspark.sql.conversion")

_NUMBERS = {
    "int8": types.ByteType(),
    "int16": types.ShortType(),
    "int32": types.IntegerType(),
    "int64": types.LongType(),
    "float32": types.FloatType(),
    "float64": types.DoubleType(),
}


TEXTS: dict[str, list[Any]] = {
    "texts": ["a", "", "é", "a"],
    "nulls": ["a", None, float("nan"), pd.NA, pd.NaT, Decimal("NaN")],
    "bytes": [b"a", "b"],
    "none": [],
}


def values_of(dtype: str) -> list[float]:
    return [0.0, -1.5, float("nan")] if dtype.startswith("float") else [0, -1, 127]


def schema_of(**columns: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, data_type) for name, data_type in columns.items()])


def stock_batch(data: Any, schema: types.StructType, **options: bool) -> pa.RecordBatch:
    return conversion.PandasToArrowConversion.convert(
        data, schema, timezone="UTC", arrow_cast=True, assign_cols_by_name=True, **options
    )


@pytest.mark.parametrize("dtype", _NUMBERS)
def test_a_frame_of_numbers_becomes_the_batch_that_pyspark_makes(dtype: str) -> None:
    frame = pd.DataFrame({"x": pd.Series(values_of(dtype), dtype=dtype), "y": [1, 2, 3]}).set_axis([7, 7, 8])
    schema = schema_of(x=_NUMBERS[dtype], y=types.LongType())
    batch = plain_batch(frame, schema, assign_cols_by_name=True)
    assert batch is not None
    assert batch.equals(stock_batch(frame, schema), check_metadata=True)


@pytest.mark.parametrize("dtype", _NUMBERS)
def test_plain_series_become_the_batch_that_pyspark_makes(dtype: str) -> None:
    series = pd.Series(values_of(dtype) * 2, dtype=dtype)
    schema = schema_of(_0=_NUMBERS[dtype], _1=_NUMBERS[dtype])
    # A strided series, which no Arrow column is.
    columns = [series[:3], series[::2]]
    batch = plain_batch(columns, schema)
    assert batch is not None
    assert batch.equals(stock_batch(columns, schema), check_metadata=True)


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("dtype", _NUMBERS)
def test_a_column_of_numbers_becomes_the_series_that_pyspark_makes(dtype: str, rows: int) -> None:
    array = pa.array(values_of(dtype)[:rows], pa.from_numpy_dtype(dtype))
    for column in (array, array.slice(1), pa.chunked_array([array, array])):
        series = plain_series(column, _NUMBERS[dtype], ser_name="x")
        assert series is not None
        stock = conversion.ArrowArrayToPandasConversion.convert(column, _NUMBERS[dtype], ser_name="x", timezone="UTC")
        pd.testing.assert_series_equal(series, stock, check_index_type=True)
        series[:] = 0


def test_a_series_that_the_function_changes_leaves_the_arguments_as_they_were() -> None:
    array = pa.array([1, 2, 3])
    series = plain_series(array, types.LongType(), ser_name="x")
    assert series is not None
    series[:] = 0
    assert array.to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("prefers_large_types", [False, True])
@pytest.mark.parametrize("values", TEXTS.values(), ids=TEXTS)
def test_series_of_texts_become_the_batch_that_pyspark_makes(values: list[Any], prefers_large_types: bool) -> None:
    columns = [pd.Series(values, dtype=object), pd.Series([1.5] * len(values), dtype=float)]
    schema = schema_of(_0=types.StringType(), _1=types.DoubleType())
    batch = plain_batch(columns, schema, prefers_large_types=prefers_large_types)
    assert batch is not None
    stock = stock_batch(columns, schema, prefers_large_types=prefers_large_types)
    assert batch.equals(stock, check_metadata=True)


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("values", [["a", None, "é"], [], ["a"] * 300, [f"text {n}" for n in range(300)]])
def test_a_column_of_texts_becomes_the_series_that_pyspark_makes(values: list[Any], text: pa.DataType) -> None:
    array = pa.array(values, text)
    columns = (array, array.slice(1), pa.chunked_array([array, array]), pa.record_batch([array], ["y"]).column(0))
    stock = conversion.ArrowArrayToPandasConversion
    for column in columns:
        for short, convert in ((plain_series, stock.convert_numpy), (plain_series_with_own_name, stock.convert_legacy)):
            series = short(column, types.StringType(), ser_name="x")
            assert series is not None
            options = {"ser_name": "x"} if short is plain_series else {}
            expected = convert(column, types.StringType(), timezone="UTC", **options)
            pd.testing.assert_series_equal(series, expected, check_index_type=True)


@pytest.mark.parametrize(
    ("frame", "schema"),
    [
        pytest.param({"x": ["a", 1]}, {"x": types.StringType()}, id="not only texts"),
        pytest.param({"x": [b"\xff"]}, {"x": types.StringType()}, id="invalid UTF-8"),
        pytest.param({"x": ["\ud800"]}, {"x": types.StringType()}, id="a lone surrogate"),
        pytest.param({"x": pd.array(["a"], "string")}, {"x": types.StringType()}, id="texts of pandas"),
        pytest.param({"x": pd.Categorical(["a"])}, {"x": types.StringType()}, id="categories of texts"),
        pytest.param({"x": ["a"]}, {"x": types.VarcharType(3)}, id="limited texts"),
        pytest.param({"x": [1, 2]}, {"x": types.IntegerType()}, id="another width"),
        pytest.param({"x": [1, 2]}, {"x": types.DoubleType()}, id="another kind of number"),
        pytest.param({"x": pd.array([1, None], "Int64")}, {"x": types.LongType()}, id="nullable numbers of pandas"),
        pytest.param({"x": [1, 2]}, {"x": types.TimestampType()}, id="no number"),
        pytest.param({"x": ["1", "2"]}, {"x": types.LongType()}, id="texts"),
        pytest.param({"x": pd.Categorical([1, 2])}, {"x": types.LongType()}, id="categories"),
        pytest.param({"y": [1], "x": [1]}, {"x": types.LongType(), "y": types.LongType()}, id="another order"),
        pytest.param({"x": [1], "y": [1]}, {"x": types.LongType()}, id="a column too many"),
        pytest.param({"x": [1]}, {}, id="no columns"),
    ],
)
def test_any_other_frame_is_left_to_pyspark(frame: dict[str, Any], schema: dict[str, types.DataType]) -> None:
    assert plain_batch(pd.DataFrame(frame), schema_of(**schema), assign_cols_by_name=True) is None


@pytest.mark.parametrize(
    ("column", "data_type", "options"),
    [
        pytest.param(pa.array([1, None]), types.LongType(), {}, id="nulls"),
        pytest.param(pa.array([1]), types.LongType(), {"prefer_int_ext_dtype": True}, id="nullable numbers wanted"),
        pytest.param(pa.array([1], pa.int32()), types.LongType(), {}, id="another width"),
        pytest.param(pa.array(["x"]), types.BinaryType(), {}, id="texts as bytes"),
        pytest.param(pa.array([b"x"]), types.StringType(), {}, id="bytes as texts"),
    ],
)
def test_any_other_column_is_left_to_pyspark(
    column: pa.Array, data_type: types.DataType, options: dict[str, bool]
) -> None:
    assert plain_series(column, data_type, ser_name="x", **options) is None
