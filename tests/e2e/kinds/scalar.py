# SPDX-License-Identifier: Apache-2.0
"""Kinds that give a value for each row: udf, pandas_udf and arrow_udf, with their iterators and structs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.e2e.kinds.kind import (
    REFUSED,
    REFUSED_IN_PANDAS,
    Change,
    Kind,
    columns_of,
    identity_name,
    result_type,
    seen_name,
)
from tests.e2e.kinds.seen import same, text, texts_of_arrow, texts_of_pandas
from tests.e2e.types import TypeCase

Maker = Callable[[Any, T.DataType | str], Any]


def _pickled(function: Any, result: T.DataType | str) -> Any:
    return F.udf(function, result, useArrow=False)


def _arrow_optimised(function: Any, result: T.DataType | str) -> Any:
    return F.udf(function, result, useArrow=True)


def _pandas(function: Any, result: T.DataType | str) -> Any:
    return F.pandas_udf(function, result, F.PandasUDFType.SCALAR)


def _pandas_iterator(function: Any, result: T.DataType | str) -> Any:
    return F.pandas_udf(function, result, F.PandasUDFType.SCALAR_ITER)


def _arrow(function: Any, result: T.DataType | str) -> Any:
    return F.arrow_udf(function, result, F.ArrowUDFType.SCALAR)


def _arrow_iterator(function: Any, result: T.DataType | str) -> Any:
    return F.arrow_udf(function, result, F.ArrowUDFType.SCALAR_ITER)


def _in_struct(values: pd.Series | pd.DataFrame) -> pd.DataFrame:
    column = values.to_dict("records") if isinstance(values, pd.DataFrame) else values
    return pd.DataFrame({"value": column, "rows": len(values)})


def _each_alone(make: Maker, seen: Any, frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
    columns: list[Column] = []
    for case in cases:
        columns.append(make(same, case.type)(case.name).alias(identity_name(case)))
        columns.append(make(seen, "string")(case.name).alias(seen_name(case)))
    return frame.select("id", *columns)


def _each_in_a_struct(frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
    columns: list[Column] = []
    for case in cases:
        result = T.StructType([T.StructField("value", case.type), T.StructField("rows", T.LongType())])
        columns.append(_pandas(_in_struct, result)(case.name).alias(identity_name(case)))
        columns.append(_pandas(texts_of_pandas, "string")(case.name).alias(seen_name(case)))
    return frame.select("id", *columns)


def _all_in_a_struct(
    make: Maker, join: Callable[[Sequence[Any], list[str]], Any], frame: DataFrame, cases: Sequence[TypeCase]
) -> DataFrame:
    # One function for all columns, because Spark gives each iterator function an operator of its own.
    names, one = result_type(cases).names, len(cases) == 1

    def over_batches(batches: Iterator[Any]) -> Iterator[Any]:
        # With one argument the function gets a column, with more a tuple of columns.
        for batch in batches:
            yield join((batch,) if one else batch, names)

    result = make(over_batches, result_type(cases))(*columns_of(cases)).alias("result")
    return frame.select("id", result).select("id", "result.*")


def _join_in_pandas(columns: Sequence[pd.Series | pd.DataFrame], names: list[str]) -> pd.DataFrame:
    results: list[pd.Series] = []
    for values in columns:
        whole = pd.Series(values.to_dict("records")) if isinstance(values, pd.DataFrame) else values
        results += [whole, texts_of_pandas(values)]
    return pd.concat(results, axis=1, keys=names)


def _join_in_arrow(columns: Sequence[pa.Array], names: list[str]) -> pa.Array:
    results: list[pa.Array] = []
    for values in columns:
        results += [values, texts_of_arrow(values)]
    return pa.StructArray.from_arrays(results, names)


def _on_each_batch(change: Change) -> Any:
    def over_batches(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield change(batch)

    return over_batches


def _in_frame(change: Change) -> Any:
    return lambda values: pd.DataFrame({"value": change(values)})


def _apply(make: Maker, frame: DataFrame, function: Any) -> DataFrame:
    return frame.select("id", make(function, "bigint")("id").alias("x"))


def _apply_struct(frame: DataFrame, function: Any) -> DataFrame:
    return frame.select("id", _pandas(function, "value bigint")("id").alias("x"))


_WRONG_ROWS = {"type": lambda value: f"text of {value}"}
_WRONG_IN_PANDAS = {
    "type": lambda values: values.astype(str) + "x",
    "short": lambda values: values.head(1),
    "long": lambda values: pd.concat([values, values]),
    "no_series": lambda values: 1,
}
_WRONG_STRUCTS = {
    "missing_field": lambda values: pd.DataFrame({"other": values}),
    "type": lambda values: pd.DataFrame({"value": values.astype(str) + "x"}),
    "short": lambda values: pd.DataFrame({"value": values.head(1)}),
}
_WRONG_IN_ARROW = {
    "type": lambda values: pa.array(["x"] * len(values)),
    "short": lambda values: values.slice(0, 1),
    "long": lambda values: pa.concat_arrays([values, values]),
    "no_array": lambda values: "no",
}
_WRONG_PANDAS_ITERATORS = {
    "type": _on_each_batch(_WRONG_IN_PANDAS["type"]),
    "short": lambda batches: iter(()),
    "long": _on_each_batch(_WRONG_IN_PANDAS["long"]),
    "no_iterator": lambda batches: 1,
}
_WRONG_ARROW_ITERATORS = {
    "type": _on_each_batch(_WRONG_IN_ARROW["type"]),
    "short": lambda batches: iter(()),
    "long": _on_each_batch(_WRONG_IN_ARROW["long"]),
    "no_iterator": lambda batches: 1,
}


def _alone(name: str, make: Maker, seen: Any, wrong: dict[str, Any], since: tuple[int, int] = (3, 5)) -> Kind:
    query = functools.partial(_each_alone, make, seen)
    return Kind(name, query, same, functools.partial(_apply, make), wrong, _refused(name), since=since)


def _iterator(name: str, make: Maker, join: Any, wrong: dict[str, Any], since: tuple[int, int] = (3, 5)) -> Kind:
    query = functools.partial(_all_in_a_struct, make, join)
    return Kind(name, query, _on_each_batch, functools.partial(_apply, make), wrong, _refused(name), since=since)


def _refused(name: str) -> frozenset[str]:
    return REFUSED_IN_PANDAS if name.startswith("pandas") else REFUSED


KINDS = [
    # Stock turns a pickled result of another type into null, so there is no error to compare.
    _alone("udf_pickled", _pickled, text, {}),
    _alone("udf_arrow", _arrow_optimised, text, _WRONG_ROWS),
    _alone("pandas_udf", _pandas, texts_of_pandas, _WRONG_IN_PANDAS),
    Kind("pandas_udf_struct", _each_in_a_struct, _in_frame, _apply_struct, _WRONG_STRUCTS, REFUSED_IN_PANDAS),
    _iterator("pandas_udf_iterator", _pandas_iterator, _join_in_pandas, _WRONG_PANDAS_ITERATORS),
    _alone("arrow_udf", _arrow, texts_of_arrow, _WRONG_IN_ARROW, since=(4, 1)),
    _iterator("arrow_udf_iterator", _arrow_iterator, _join_in_arrow, _WRONG_ARROW_ITERATORS, since=(4, 1)),
]
