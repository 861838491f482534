# SPDX-License-Identifier: Apache-2.0
"""The kinds of functions of the differential suite.

Each kind turns a type case into two columns: the identity, which proves that values survive both ways, and `seen`, the
text of what the function was given, which proves that it was given exactly what stock PySpark gives it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.e2e.types import TypeCase


@dataclass(frozen=True)
class Kind:
    """A kind of function; several type cases can share one query, each with columns of its own."""

    name: str
    query: Callable[[DataFrame, Sequence[TypeCase]], DataFrame]


def identity_name(case: TypeCase) -> str:
    """Column of the result that holds the values as they came back."""
    return f"same_{case.name}"


def seen_name(case: TypeCase) -> str:
    """Column of the result that holds what the function saw."""
    return f"seen_{case.name}"


def _text(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"


def _texts_of_arrow(values: pa.Array) -> pa.Array:
    return pa.array([f"{values.type} {_text(value)}" for value in values.to_pylist()], pa.string())


def _texts_of_pandas(values: pd.Series | pd.DataFrame) -> pd.Series:
    if isinstance(values, pd.DataFrame):
        columns = [_texts_of_pandas(values[name]) for name in values.columns]
        return pd.Series([repr((list(values.columns), row)) for row in zip(*columns, strict=True)], dtype=object)
    return pd.Series([f"{values.dtype} {_text(value)}" for value in values], dtype=object)


def _same(values: Any) -> Any:
    return values


def _in_struct(values: pd.Series | pd.DataFrame) -> pd.DataFrame:
    column = values.to_dict("records") if isinstance(values, pd.DataFrame) else values
    return pd.DataFrame({"value": column, "rows": len(values)})


Maker = Callable[[TypeCase], tuple[Callable[..., Column], Callable[..., Column]]]


def _scalar_query(maker: Maker, frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
    columns: list[Column] = []
    for case in cases:
        same, seen = maker(case)
        columns += [same(case.name).alias(identity_name(case)), seen(case.name).alias(seen_name(case))]
    return frame.select("id", *columns)


def _pickled(case: TypeCase) -> tuple[Any, Any]:
    return F.udf(_same, case.type, useArrow=False), F.udf(_text, "string", useArrow=False)


def _arrow_optimised(case: TypeCase) -> tuple[Any, Any]:
    return F.udf(_same, case.type, useArrow=True), F.udf(_text, "string", useArrow=True)


def _pandas(case: TypeCase) -> tuple[Any, Any]:
    eval_type = F.PandasUDFType.SCALAR
    return F.pandas_udf(_same, case.type, eval_type), F.pandas_udf(_texts_of_pandas, "string", eval_type)


def _pandas_struct(case: TypeCase) -> tuple[Any, Any]:
    result = T.StructType([T.StructField("value", case.type), T.StructField("rows", T.LongType())])
    eval_type = F.PandasUDFType.SCALAR
    return F.pandas_udf(_in_struct, result, eval_type), F.pandas_udf(_texts_of_pandas, "string", eval_type)


def _arrow(case: TypeCase) -> tuple[Any, Any]:
    eval_type = F.ArrowUDFType.SCALAR
    return F.arrow_udf(_same, case.type, eval_type), F.arrow_udf(_texts_of_arrow, "string", eval_type)


def _result_type(cases: Sequence[TypeCase]) -> T.StructType:
    fields = []
    for case in cases:
        fields += [T.StructField(identity_name(case), case.type), T.StructField(seen_name(case), T.StringType())]
    return T.StructType(fields)


def _map_schema(cases: Sequence[TypeCase]) -> T.StructType:
    return T.StructType([T.StructField("id", T.IntegerType()), *_result_type(cases)])


def _over_tuples(function: Callable[[Sequence[Any]], Any], arguments: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """An iterator function gets a column alone when it has one argument, and a tuple of them when it has more."""

    def over_batches(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield function((batch,) if arguments == 1 else batch)

    return over_batches


def _one_struct(frame: DataFrame, cases: Sequence[TypeCase], function: Any) -> DataFrame:
    # One function with all columns: Spark gives each iterator function an operator of its own.
    result = function(*(case.name for case in cases)).alias("result")
    return frame.select("id", result).select("id", "result.*")


def _pandas_iterator(frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
    names = _result_type(cases).names

    def both(columns: Sequence[pd.Series | pd.DataFrame]) -> pd.DataFrame:
        results: list[pd.Series] = []
        for values in columns:
            same = pd.Series(values.to_dict("records")) if isinstance(values, pd.DataFrame) else values
            results += [same, _texts_of_pandas(values)]
        return pd.concat(results, axis=1, keys=names)

    over_batches = _over_tuples(both, len(cases))
    function = F.pandas_udf(over_batches, _result_type(cases), F.PandasUDFType.SCALAR_ITER)
    return _one_struct(frame, cases, function)


def _arrow_iterator(frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
    names = _result_type(cases).names

    def both(columns: Sequence[pa.Array]) -> pa.Array:
        results: list[pa.Array] = []
        for values in columns:
            results += [values, _texts_of_arrow(values)]
        return pa.StructArray.from_arrays(results, names)

    over_batches = _over_tuples(both, len(cases))
    function = F.arrow_udf(over_batches, _result_type(cases), F.ArrowUDFType.SCALAR_ITER)
    return _one_struct(frame, cases, function)


def _map_in_arrow(frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
    names = _map_schema(cases).names

    def both(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [batch.column(0)]
            for values in batch.columns[1:]:
                columns += [values, _texts_of_arrow(values)]
            yield pa.RecordBatch.from_arrays(columns, names)

    return frame.select("id", *(case.name for case in cases)).mapInArrow(both, _map_schema(cases))


def _map_in_pandas(frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
    names = _map_schema(cases).names

    def both(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            columns = [batch.iloc[:, 0]]
            for index in range(1, len(batch.columns)):
                values = batch.iloc[:, index]
                columns += [values, _texts_of_pandas(values)]
            yield pd.concat(columns, axis=1, keys=names)

    return frame.select("id", *(case.name for case in cases)).mapInPandas(both, _map_schema(cases))


def _scalar(name: str, maker: Maker) -> Kind:
    return Kind(name, functools.partial(_scalar_query, maker))


KINDS = [
    _scalar("udf_pickled", _pickled),
    _scalar("udf_arrow", _arrow_optimised),
    _scalar("pandas_udf", _pandas),
    _scalar("pandas_udf_struct", _pandas_struct),
    Kind("pandas_udf_iterator", _pandas_iterator),
    _scalar("arrow_udf", _arrow),
    Kind("arrow_udf_iterator", _arrow_iterator),
    Kind("map_in_arrow", _map_in_arrow),
    Kind("map_in_pandas", _map_in_pandas),
]
