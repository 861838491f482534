# SPDX-License-Identifier: Apache-2.0
"""Functions may return columns of any Arrow type: Spark accepts or refuses each as it does on stock.

PySpark's worker casts the results of `arrow_udf` and checks the types of `applyInArrow`. It does neither for
`mapInArrow`, so Spark's JVM decides.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.sides import Query, Sides
from tests.support.kinds_of_spark import needs_spark
from tests.support.spark import SPARK_VERSION

_VALIDATE = "spark.sql.execution.arrow.pyspark.validateSchema.enabled"
_LONG = "longer than what a view holds itself"
_TEXTS = ("a", None, _LONG)
_BYTES = (b"a", None, _LONG.encode())
_LISTS: Sequence[list[int | None] | None] = ([1, None, 3], None, [])
_DECIMALS = (decimal.Decimal("1.25"), None, decimal.Decimal("-3.50"))
_INSTANTS = (datetime.datetime(2020, 1, 2, 3, 4, 5, 678901), None, datetime.datetime(1960, 1, 1))
_SPANS = (datetime.timedelta(days=1, seconds=5), None, datetime.timedelta(-1))
_DAYS = (datetime.date(2020, 1, 2), None, datetime.date(1900, 1, 1))
_TIMES = (datetime.time(1, 2, 3), None, datetime.time(0))


class _Label(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """Extension type that only the function's side knows."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "test.label")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, _serialized: bytes) -> _Label:
        return cls(storage)


class _Column(NamedTuple):
    """Three rows that a function returns, and the type that it was declared to return."""

    make: Callable[[], pa.Array]
    declared: str


def _of(values: object, kind: pa.DataType, declared: str) -> _Column:
    return _Column(lambda: pa.array(values, kind), declared)


def _label(storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(_Label(storage.type), storage)


def _listed(items: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, None, 2, 3], pa.int32()), items)


def _union() -> pa.Array:
    return pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array(_TEXTS), pa.array([1, 2, 3])])


def _codes() -> pa.Array:
    return pa.array(["x", None, "y"]).dictionary_encode()


def _narrow_codes() -> pa.Array:
    return _codes().cast(pa.dictionary(pa.int8(), pa.string()))


_VIEWS: Mapping[str, _Column] = {
    "string_view": _of(_TEXTS, pa.string_view(), "string"),
    "short string_view": _of(["a", None, "b"], pa.string_view(), "string"),
    "slice of a string_view": _Column(lambda: pa.array([_LONG, *_TEXTS], pa.string_view())[1:], "string"),
    "binary_view": _of(_BYTES, pa.binary_view(), "binary"),
    "list of string_view": _of([_TEXTS, None, []], pa.list_(pa.string_view()), "array<string>"),
    "slice of lists of string_view": _Column(
        lambda: pa.array([["x"], _TEXTS, None, []], pa.list_(pa.string_view()))[1:], "array<string>"
    ),
    "struct of string_view": _of(
        [{"f": _LONG}, None, {"f": None}], pa.struct([("f", pa.string_view())]), "struct<f: string>"
    ),
    "map of views": _of(
        [{_LONG: b"a"}, None, {"b": None}], pa.map_(pa.string_view(), pa.binary_view()), "map<string, binary>"
    ),
    "list_view": _of(_LISTS, pa.list_view(pa.int32()), "array<int>"),
    "list_view of string_view": _of([_TEXTS, None, []], pa.list_view(pa.string_view()), "array<string>"),
    "extension of a string_view": _Column(lambda: _label(pa.array(_TEXTS, pa.string_view())), "string"),
}
_READ: Mapping[str, _Column] = {
    "large_string": _of(_TEXTS, pa.large_string(), "string"),
    "large_binary": _of(_BYTES, pa.large_binary(), "binary"),
    "list of large_string": _of([_TEXTS, None, []], pa.list_(pa.large_string()), "array<string>"),
    "indices of a dictionary": _Column(_codes, "int"),
    "narrow indices of a dictionary": _Column(_narrow_codes, "tinyint"),
    "list of indices of a dictionary": _Column(lambda: _listed(_codes()), "array<int>"),
    "extension": _Column(lambda: _label(pa.array(_TEXTS)), "string"),
    "list of extension": _Column(lambda: _listed(_label(pa.array(_TEXTS))), "array<string>"),
    "bool8": _of([1, None, 0], pa.bool8(), "tinyint"),
    "json": _of(["1", None, "2"], pa.json_(), "string"),
    "null": _Column(lambda: pa.nulls(3), "void"),
    "sorted map": _of([{"a": 1}, None, {}], pa.map_(pa.string(), pa.int32(), keys_sorted=True), "map<string, int>"),
    "decimal128": _of(_DECIMALS, pa.decimal128(5, 2), "decimal(5, 2)"),
    "timestamp[us]": _of(_INSTANTS, pa.timestamp("us"), "timestamp_ntz"),
    "timestamp[us, zone]": _of(_INSTANTS, pa.timestamp("us", "Europe/Prague"), "timestamp"),
    "duration[us]": _of(_SPANS, pa.duration("us"), "interval day to second"),
    "date32": _of(_DAYS, pa.date32(), "date"),
    **({"time64[ns]": _of(_TIMES, pa.time64("ns"), "time")} if SPARK_VERSION >= (4, 1) else {}),
    **(_VIEWS if SPARK_VERSION >= (4, 3) else {}),
}
# Spark 4.0 does not compare types, and reads these.
_MISMATCHES: Mapping[str, _Column] = {
    "decimal of another scale": _of(_DECIMALS, pa.decimal128(5, 2), "decimal(5, 3)"),
    "timestamp[us] as timestamp": _of(_INSTANTS, pa.timestamp("us"), "timestamp"),
}
_REFUSED: Mapping[str, _Column] = {
    "dictionary": _Column(_codes, "string"),
    "list of dictionary": _Column(lambda: _listed(_codes()), "array<string>"),
    "string_view as int": _of(_TEXTS, pa.string_view(), "int"),
    "fixed_size_binary": _of([b"abc", None, b"def"], pa.binary(3), "binary"),
    "uuid": _of([b"u" * 16, None, b"v" * 16], pa.uuid(), "binary"),
    "large_list": _of(_LISTS, pa.large_list(pa.int32()), "array<int>"),
    "large_list of string_view": _of([_TEXTS, None, []], pa.large_list(pa.string_view()), "array<string>"),
    "fixed_size_list": _of([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2), "array<int>"),
    "large_list_view": _of(_LISTS, pa.large_list_view(pa.int32()), "array<int>"),
    "run-end encoded": _Column(lambda: pc.run_end_encode(pa.array(["a", "a", None])), "string"),
    "union": _Column(_union, "string"),
    "uint8": _of([1, None, 3], pa.uint8(), "smallint"),
    "float16": _of([1.5, None, 2.0], pa.float16(), "float"),
    "decimal32": _of(_DECIMALS, pa.decimal32(5, 2), "decimal(5, 2)"),
    "decimal64": _of(_DECIMALS, pa.decimal64(15, 2), "decimal(15, 2)"),
    "decimal256": _of(_DECIMALS, pa.decimal256(38, 2), "decimal(38, 2)"),
    "decimal of negative scale": _of([decimal.Decimal(100)] * 3, pa.decimal128(5, -2), "decimal(7, 0)"),
    "timestamp[ms]": _of(_INSTANTS[1:2] * 3, pa.timestamp("ms"), "timestamp_ntz"),
    "timestamp[ns]": _of(_INSTANTS, pa.timestamp("ns"), "timestamp_ntz"),
    "duration[ns]": _of(_SPANS, pa.duration("ns"), "interval day to second"),
    "date64": _of(_DAYS, pa.date64(), "date"),
    **(_MISMATCHES if SPARK_VERSION >= (4, 1) else {}),
    **({"time32[ms]": _of(_TIMES, pa.time32("ms"), "time")} if SPARK_VERSION >= (4, 1) else {}),
    **(_VIEWS if SPARK_VERSION < (4, 3) else {}),
}
_CAST = (
    *("large_string", "large_binary", "list of large_string", "extension", "bool8", "json", "null", "sorted map"),
    *("dictionary", "list of dictionary", "fixed_size_binary", "uuid", "large_list", "large_list of string_view"),
    *("fixed_size_list", "uint8", "float16", "decimal32", "decimal64", "decimal256", "decimal of negative scale"),
    *("decimal of another scale", "timestamp[ms]", "timestamp[ns]", "timestamp[us] as timestamp", "duration[ns]"),
    *("date64", "string_view", "slice of a string_view", "binary_view", "list of string_view", "struct of string_view"),
    *("slice of lists of string_view", "map of views"),
)
_COLUMNS = {**_VIEWS, **_READ, **_MISMATCHES, **_REFUSED}


def _map(column: _Column) -> Query:
    # An error of the maker would be the same on both sides.
    assert len(column.make()) == 3
    return lambda spark: _one_row(spark).mapInArrow(_returning({"r": column.make}), f"r {column.declared}")


def _one_row(spark: SparkSession) -> DataFrame:
    return spark.range(0, 1, 1, 1)


def _returning(
    columns: Mapping[str, Callable[[], pa.Array]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def returning(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            # Two batches, because the second is compared with the first.
            for _ in range(2):
                yield pa.RecordBatch.from_arrays([make() for make in columns.values()], list(columns))

    return returning


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _all_that_is_read(spark: SparkSession) -> DataFrame:
    schema = ", ".join(f"`{name}` {column.declared}" for name, column in _READ.items())
    makers = {name: column.make for name, column in _READ.items()}
    return _one_row(spark).mapInArrow(_returning(makers), schema)


@pytest.mark.parametrize("validate", ["true", "false"])
def test_map_in_arrow_gives_what_spark_reads_of_each_type(sides: Sides, validate: str) -> None:
    ours = sides.assert_same(_all_that_is_read, confs={_VALIDATE: validate})
    assert len(ours.rows) == 6


def test_another_function_gets_what_spark_has_read(sides: Sides) -> None:
    def query(spark: SparkSession) -> DataFrame:
        first = _all_that_is_read(spark).drop("null")
        return first.mapInArrow(_unchanged, first.schema)

    sides.assert_same(query)


@pytest.mark.parametrize("name", _REFUSED)
def test_spark_refuses_a_type_with_the_words_of_stock(sides: Sides, name: str) -> None:
    if name == "float16":
        needs_spark((4, 0), "words of its own, but Arrow's, for float16")
    sides.assert_refused_alike(_map(_REFUSED[name]), confs={_VALIDATE: "true"})


@pytest.mark.parametrize("name", ["dictionary", "string_view as int"])
def test_a_type_that_spark_does_not_check_is_refused_where_it_is_read(sides: Sides, name: str) -> None:
    sides.assert_refused_alike(_map(_REFUSED[name]), confs={_VALIDATE: "false"})


def test_a_second_batch_of_another_type_is_refused_as_on_stock(sides: Sides) -> None:
    def returning(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            for kind in (pa.string_view(), pa.large_string()):
                yield pa.RecordBatch.from_arrays([pa.array(_TEXTS, kind)], ["r"])

    sides.assert_refused_alike(lambda spark: _one_row(spark).mapInArrow(returning, "r string"))


@pytest.mark.parametrize("name", ["string_view", "dictionary"])
def test_apply_in_arrow_takes_no_other_type_than_declared(sides: Sides, name: str) -> None:
    column = _COLUMNS[name]

    def query(spark: SparkSession) -> DataFrame:
        groups = _one_row(spark).groupBy("id")
        return groups.applyInArrow(lambda _: pa.table({"r": column.make()}), f"r {column.declared}")

    sides.assert_refused_alike(query)


def test_arrow_udf_casts_each_type(sides: Sides) -> None:
    def query(spark: SparkSession) -> DataFrame:
        functions = {name: _udf(_COLUMNS[name]) for name in _CAST}
        return spark.range(0, 3, 1, 1).select(*(function("id").alias(name) for name, function in functions.items()))

    sides.assert_same(query)


def _udf(column: _Column) -> Callable[..., Column]:
    function: Callable[..., Column] = F.arrow_udf(lambda _: column.make(), column.declared)
    return function
