# SPDX-License-Identifier: Apache-2.0
"""Arrow types that a function may return: the same answer as on stock, or an error on both sides."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.sides import Query, Sides, canonical
from tests.support.spark import SPARK_VERSION

_VALIDATES = "spark.sql.execution.arrow.pyspark.validateSchema.enabled"
_LONG = "longer than twelve bytes"
_TEXTS = ["a", None, _LONG]
_INSTANT = [datetime.datetime(2024, 2, 29, 12, 34, 56), None]


class _Celsius(pa.ExtensionType):
    """Written in Python, as those of users are."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> _Celsius:
        return cls()


@dataclass(frozen=True)
class _Case:
    name: str
    array: Callable[[], pa.Array]
    type: str


_CASES = [
    _Case("string_view", lambda: pa.array(_TEXTS, pa.string_view()), "string"),
    _Case("binary_view", lambda: pa.array([b"a", None, _LONG.encode()], pa.binary_view()), "binary"),
    _Case("short string_view", lambda: pa.array(["a", None], pa.string_view()), "string"),
    _Case("list of string_view", lambda: pa.array([_TEXTS, []], pa.list_(pa.string_view())), "array<string>"),
    _Case("struct", lambda: pa.array([{"a": _LONG}], pa.struct([("a", pa.string_view())])), "struct<a: string>"),
    _Case("map", lambda: pa.array([[("k", _LONG)]], pa.map_(pa.string(), pa.string_view())), "map<string, string>"),
    _Case("large_string", lambda: pa.array(_TEXTS, pa.large_string()), "string"),
    _Case("large_list", lambda: pa.array([[1, None], None], pa.large_list(pa.int64())), "array<bigint>"),
    _Case("fixed_size_list", lambda: pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), "array<bigint>"),
    _Case("list_view", lambda: pa.array([[1], None, [2, 3]], pa.list_view(pa.int64())), "array<bigint>"),
    _Case("dictionary", lambda: pa.array(_TEXTS).dictionary_encode(), "string"),
    _Case("run_end_encoded", lambda: pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([1, 2])), "bigint"),
    _Case("extension", lambda: pa.ExtensionArray.from_storage(_Celsius(), pa.array([1, None])), "bigint"),
    _Case("json", lambda: pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None])), "string"),
    _Case("duration[s]", lambda: pa.array([datetime.timedelta(1, 2)], pa.duration("s")), "interval day to second"),
    _Case("duration[us]", lambda: pa.array([datetime.timedelta(1, 2)], pa.duration("us")), "interval day to second"),
    _Case("timestamp[ns]", lambda: pa.array(_INSTANT, pa.timestamp("ns")), "timestamp_ntz"),
    _Case("timestamp[us]", lambda: pa.array(_INSTANT, pa.timestamp("us", "Europe/Berlin")), "timestamp"),
    _Case("date64", lambda: pa.array([datetime.date(2024, 2, 29), None], pa.date64()), "date"),
    _Case("decimal256", lambda: pa.array([decimal.Decimal("1.5")], pa.decimal256(10, 1)), "decimal(10, 1)"),
    _Case("uint32", lambda: pa.array([1, None], pa.uint32()), "int"),
    _Case("null", lambda: pa.nulls(2), "bigint"),
]


def _mapped(case: _Case) -> Query:
    array = case.array()

    def give(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_arrays([array, pa.array(range(len(array)))], ["r", "i"])

    return lambda spark: spark.range(0, 1, 1, 1).mapInArrow(give, f"r {case.type}, i bigint")


def _grouped(case: _Case) -> Query:
    array = case.array()

    def query(spark: SparkSession) -> DataFrame:
        groups = spark.range(0, 1, 1, 1).groupBy("id")
        return groups.applyInArrow(lambda table: pa.table({"r": array}), f"r {case.type}")

    return query


def _evaluated(case: _Case) -> Query:
    array = case.array()
    function = F.arrow_udf(lambda column: array, case.type)
    return lambda spark: spark.range(0, len(array), 1, 1).select(function("id"))


def _assert_alike(sides: Sides, query: Query, confs: dict[str, str] | None = None) -> Any:
    stock, ours = sides.stock(query, confs), sides.updraft(query, confs=confs)
    assert (ours.error is None) == (stock.error is None), ours.error or stock.error
    assert [canonical(row) for row in ours.rows] == [canonical(row) for row in stock.rows]
    sides.assert_ran_on_the_pool(ours)
    return stock


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_a_type_that_a_function_returns_is_read_or_refused_as_on_stock(sides: Sides, case: _Case) -> None:
    for validates in ("true", "false"):
        _assert_alike(sides, _mapped(case), {_VALIDATES: validates})
    _assert_alike(sides, _grouped(case))
    if SPARK_VERSION >= (4, 1):
        _assert_alike(sides, _evaluated(case))


@pytest.mark.skipif(SPARK_VERSION < (4, 3), reason="Spark reads views since 4.3")
def test_views_are_read(sides: Sides) -> None:
    assert [row[0] for row in _assert_alike(sides, _mapped(_CASES[0])).rows] == _TEXTS
