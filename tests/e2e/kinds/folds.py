# SPDX-License-Identifier: Apache-2.0
"""Kinds that give one value for a group or for a frame: aggregates and windows of pandas_udf and arrow_udf."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.e2e.kinds.kind import Change, Kind, identity_name, seen_name
from tests.e2e.kinds.seen import texts_of_arrow, texts_of_pandas
from tests.e2e.types import TypeCase

Maker = Callable[[Any, T.DataType | str], Any]


def _pandas(function: Any, result: T.DataType | str) -> Any:
    return F.pandas_udf(function, result, F.PandasUDFType.GROUPED_AGG)


def _pandas_iterator(function: Any, result: T.DataType | str) -> Any:
    return F.pandas_udf(function, result, F.PandasUDFType.GROUPED_AGG_ITER)


def _arrow(function: Any, result: T.DataType | str) -> Any:
    return F.arrow_udf(function, result, F.ArrowUDFType.GROUPED_AGG)


def _arrow_iterator(function: Any, result: T.DataType | str) -> Any:
    return F.arrow_udf(function, result, F.ArrowUDFType.GROUPED_AGG_ITER)


def _first(values: Any) -> Any:
    return values.iloc[0] if isinstance(values, pd.Series) else values[0]


def _first_of_frame(values: Any) -> Any:
    # A struct is a DataFrame, whose first row is to come back whole.
    return values.to_dict("records")[0] if isinstance(values, pd.DataFrame) else _first(values)


def _all_texts(values: Any) -> str:
    texts = texts_of_arrow(values).to_pylist() if isinstance(values, pa.Array) else list(texts_of_pandas(values))
    return " | ".join(texts)


def _over_batches(fold: Callable[[Any], Any], join: Callable[[list[Any]], Any]) -> Any:
    return lambda batches: join([fold(values) for values in batches])


def _whole(fold: Callable[[Any], Any], join: Callable[[list[Any]], Any]) -> Any:
    return fold


Signature = Callable[[Callable[[Any], Any], Callable[[list[Any]], Any]], Any]
Fold = Callable[[DataFrame, str, Sequence[Column]], DataFrame]


def _aggregated(frame: DataFrame, key: str, columns: Sequence[Column]) -> DataFrame:
    return frame.groupBy(key).agg(*columns)


def _over(frame: DataFrame, key: str, columns: Sequence[Column], rows: tuple[int, int]) -> DataFrame:
    window = Window.partitionBy(key).orderBy("id").rowsBetween(*rows)
    return frame.select("id", *(column.over(window) for column in columns))


def _kind(
    name: str,
    make: Maker,
    fold: Fold,
    wrong: dict[str, Any],
    since: tuple[int, int] = (4, 0),
    signature: Signature = _whole,
) -> Kind:
    def query(frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
        first, seen = signature(_first_of_frame, lambda parts: parts[0]), signature(_all_texts, " | ".join)
        columns, names = [], ["id"]
        for case in cases:
            columns += [make(first, case.type)(case.name), make(seen, "string")(case.name)]
            names += [identity_name(case), seen_name(case)]
        return fold(frame, "id", columns).toDF(*names)

    def function(change: Change) -> Any:
        return signature(lambda values: _first(change(values)), lambda parts: parts[0])

    def apply(frame: DataFrame, function: Any) -> DataFrame:
        return fold(frame, "k", [make(function, "bigint")("id")]).toDF("id", "x")

    return Kind(name, query, function, apply, wrong, over_groups=True, since=since)


def _windows(name: str, make: Maker, wrong: dict[str, Any], since: tuple[int, int] = (4, 0)) -> list[Kind]:
    return [
        _kind(f"{name}_unbounded", make, functools.partial(_over, rows=_WHOLE_PARTITION), wrong, since),
        _kind(f"{name}_bounded", make, functools.partial(_over, rows=(-1, 1)), wrong, since),
    ]


_WHOLE_PARTITION = (Window.unboundedPreceding, Window.unboundedFollowing)
_WRONG = {"type": lambda values: "text", "no_value": lambda values: [1, 2]}

KINDS = [
    _kind("aggregate_pandas", _pandas, _aggregated, _WRONG),
    _kind("aggregate_pandas_iterator", _pandas_iterator, _aggregated, _WRONG, (4, 2), _over_batches),
    _kind("aggregate_arrow", _arrow, _aggregated, _WRONG, (4, 1)),
    _kind("aggregate_arrow_iterator", _arrow_iterator, _aggregated, _WRONG, (4, 2), _over_batches),
    *_windows("window_pandas", _pandas, _WRONG),
    *_windows("window_arrow", _arrow, _WRONG, (4, 1)),
]
