# SPDX-License-Identifier: Apache-2.0
"""Kinds that give one value for a group or for a frame: aggregates and windows of pandas_udf and arrow_udf."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.e2e.kinds.kind import (
    REFUSED,
    UDT_REFUSED_IN_PANDAS,
    Change,
    Kind,
    columns_of,
    identity_name,
    result_type,
    seen_name,
)
from tests.e2e.kinds.seen import texts_of_arrow, texts_of_pandas
from tests.e2e.types import TypeCase
from tests.support.spark import SPARK_VERSION

Maker = Callable[[Any, T.DataType | str], Any]
Fold = Callable[[DataFrame, Column, Sequence[Column]], DataFrame]

_WHOLE_PARTITION = (Window.unboundedPreceding, Window.unboundedFollowing)
_AROUND = (-1, 1)


def _pandas(function: Any, result: T.DataType | str) -> Any:
    return F.pandas_udf(function, result, F.PandasUDFType.GROUPED_AGG)


def _pandas_iterator(function: Any, result: T.DataType | str) -> Any:
    return F.pandas_udf(function, result, F.PandasUDFType.GROUPED_AGG_ITER)


def _arrow(function: Any, result: T.DataType | str) -> Any:
    return F.arrow_udf(function, result, F.ArrowUDFType.GROUPED_AGG)


def _arrow_iterator(function: Any, result: T.DataType | str) -> Any:
    return F.arrow_udf(function, result, F.ArrowUDFType.GROUPED_AGG_ITER)


def _first(values: Any) -> Any:
    """Return the first value, the first row of a struct, which pandas sees as a DataFrame, or None for a null."""
    if isinstance(values, pd.DataFrame):
        return values.to_dict("records")[0]
    if isinstance(values, pd.Series):
        return None if values.iloc[0] is pd.NaT else values.iloc[0]
    # Arrow cannot make an array of a null list's scalar.
    return values[0] if values[0].is_valid else None


def _all_texts(values: Any) -> str:
    texts = texts_of_arrow(values).to_pylist() if isinstance(values, pa.Array) else list(texts_of_pandas(values))
    return " | ".join(texts)


def _aggregated(frame: DataFrame, key: Column, columns: Sequence[Column]) -> DataFrame:
    return frame.groupBy(key.alias("id")).agg(*columns)


def _over(frame: DataFrame, key: Column, columns: Sequence[Column], rows: tuple[int, int]) -> DataFrame:
    window = Window.partitionBy(key).orderBy("id").rowsBetween(*rows)
    return frame.select("id", *(column.over(window) for column in columns))


def _groups() -> Column:
    """Return the groups: each value of the table with the last shape's value in its place, only nulls, and one row."""
    return F.expr("CASE int(id / 100) WHEN 2 THEN -1 WHEN 3 THEN -2 ELSE id % 100 END")


def _kind(name: str, make: Maker, fold: Fold, wrong: dict[str, Any], since: tuple[int, int] = (3, 5)) -> Kind:
    def query(frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
        columns, names = [], ["id"]
        for case in cases:
            columns += [make(_first, case.type)(case.name), make(_all_texts, "string")(case.name)]
            names += [identity_name(case), seen_name(case)]
        return fold(frame, _groups(), columns).toDF(*names)

    def function(change: Change) -> Any:
        return lambda values: _first(change(values))

    refused = REFUSED | (_REFUSED_IN_PANDAS if make is _pandas else _REFUSED_IN_ARROW.get(name, set()))
    apply = functools.partial(_apply, make, fold)
    return Kind(name, query, function, apply, wrong, refused, over_groups=True, since=since)


def _iterator_kind(name: str, make: Maker, in_struct: Callable[..., Any], wrong: dict[str, Any]) -> Kind:
    def query(frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
        names, one = result_type(cases).names, len(cases) == 1

        # Stock accepts one such function in a query: it gets all columns, and returns all results.
        def over_batches(batches: Iterator[Any]) -> Any:
            columns = [list(batches)] if one else zip(*batches, strict=True)
            results: list[Any] = []
            for parts in columns:
                results += [parts[0], " | ".join(map(_all_texts, parts))]
            return in_struct(results, names)

        column = make(over_batches, result_type(cases))(*columns_of(cases))
        return _aggregated(frame, _groups(), [column.alias("result")]).select("id", "result.*")

    def function(change: Change) -> Any:
        return lambda batches: next(_first(change(values)) for values in batches)

    apply = functools.partial(_apply, make, _aggregated)
    if make is _pandas_iterator and SPARK_VERSION < (4, 3):
        alone, refused = functools.partial(_one_case, make), REFUSED | _REFUSED_IN_PANDAS
        return Kind(name, alone, function, apply, wrong, refused, over_groups=True, alone=True, since=(4, 2))
    refused = REFUSED | ({"point_udt"} if make is _pandas_iterator else _REFUSED_IN_ARROW.get(name, set()))
    return Kind(name, query, function, apply, wrong, refused, over_groups=True, since=(4, 2))


def _one_case(make: Maker, frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
    """Query one case with an operator for each result; no structs, which pandas' iterators return since Spark 4.3."""
    (case,) = cases
    first = make(lambda batches: _first(next(batches)), case.type)(case.name).alias(identity_name(case))
    seen = make(lambda batches: " | ".join(map(_all_texts, batches)), "string")(case.name).alias(seen_name(case))
    return _aggregated(frame, _groups(), [first]).join(_aggregated(frame, _groups(), [seen]), "id")


def _apply(make: Maker, fold: Fold, frame: DataFrame, function: Any) -> DataFrame:
    return fold(frame, F.col("k"), [make(function, "bigint")("id")]).toDF("id", "x")


def _pandas_struct(results: list[pd.Series | pd.DataFrame | str], names: list[str]) -> Any:
    values = [result if isinstance(result, str) else _first(result) for result in results]
    return dict(zip(names, values, strict=True))


def _arrow_struct(results: list[pa.Array | str], names: list[str]) -> Any:
    columns = [pa.array([result]) if isinstance(result, str) else result.slice(0, 1) for result in results]
    return pa.StructArray.from_arrays(columns, names)[0]


_REFUSED_IN_PANDAS = UDT_REFUSED_IN_PANDAS | {"struct", "struct_nested"}
# Arrow cannot make an array of scalars with a null list, or of a struct's scalar with a column of nulls.
_REFUSED_IN_ARROW = {
    "aggregate_arrow": {"array_array"},
    "aggregate_arrow_iterator": {"void"},
    "window_arrow_bounded": {"array_array"},
}
_WRONG_IN_PANDAS = {
    "text": lambda values: "text",
    "fraction": lambda values: 1.5,
    "null": lambda values: None,
    "list": lambda values: [1, 2],
    "series": lambda values: values,
    "signature": lambda values, others: 1,
}
_WRONG_IN_ARROW = {
    "text": lambda values: "text",
    "fraction": lambda values: pa.scalar(1.5),
    "null": lambda values: None,
    "overflow": lambda values: pa.scalar(2**63, pa.uint64()),
    "array": lambda values: values,
}
_WRONG_OVER_BATCHES = {"text": lambda batches: "text", "generator": lambda batches: (1 for _ in batches)}
_WRONG_FRAMES_IN_PANDAS = {name: _WRONG_IN_PANDAS[name] for name in ("text", "null", "series")}
_WRONG_FRAMES_IN_ARROW = {name: _WRONG_IN_ARROW[name] for name in ("text", "null", "array")}
_bounded, _unbounded = functools.partial(_over, rows=_AROUND), functools.partial(_over, rows=_WHOLE_PARTITION)

KINDS = [
    _kind("aggregate_pandas", _pandas, _aggregated, _WRONG_IN_PANDAS),
    _iterator_kind("aggregate_pandas_iterator", _pandas_iterator, _pandas_struct, _WRONG_OVER_BATCHES),
    _kind("aggregate_arrow", _arrow, _aggregated, _WRONG_IN_ARROW, (4, 1)),
    _iterator_kind("aggregate_arrow_iterator", _arrow_iterator, _arrow_struct, _WRONG_OVER_BATCHES),
    _kind("window_pandas_unbounded", _pandas, _unbounded, _WRONG_FRAMES_IN_PANDAS),
    _kind("window_pandas_bounded", _pandas, _bounded, _WRONG_FRAMES_IN_PANDAS),
    _kind("window_arrow_unbounded", _arrow, _unbounded, _WRONG_FRAMES_IN_ARROW, (4, 1)),
    _kind("window_arrow_bounded", _arrow, _bounded, _WRONG_FRAMES_IN_ARROW, (4, 1)),
]
