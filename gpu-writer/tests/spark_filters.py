# SPDX-License-Identifier: Apache-2.0
"""Filters over the cases of `skipping`: the rows that Spark finds with and without pushing the filter down."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import skipping
from pyspark.sql import DataFrame, SparkSession
from skipping import Case

# Each task deserializes the whole union, so long unions are slow.
_FILTERS_PER_QUERY = 20


def assert_spark_finds(spark: SparkSession, path: str, kind: str, cases: list[Case]) -> None:
    """Try every filter over `cases`: a pushed-down filter must find the same rows as one that Spark evaluates."""
    # An explicit schema, because Spark cannot open a file with a half float and reads intervals as numbers.
    schema = ", ".join(["id bigint", *(f"{case.name} {_type(case)}" for case in cases)])
    frame = spark.read.schema(schema).format(kind).load(path)
    conditions = _conditions(cases)
    assert skipping.wrong(conditions, _pushed_down(frame, conditions), _evaluated(frame, conditions)) == []


def _conditions(cases: list[Case]) -> list[str]:
    conditions: list[str] = []
    for case in cases:
        column = {"struct": f"{case.name}.x", "list": f"{case.name}[0]", "map": f"{case.name}['k']"}.get(
            case.place, case.name
        )
        conditions += [f"{column} IS NULL", f"{column} IS NOT NULL"]
        is_float = pa.types.is_floating(case.data_type)
        if is_float:
            conditions.append(f"isnan({column})")
        for operator, values in skipping.filters(case):
            literals = ", ".join(_literal(value, case.spark) for value in values)
            conditions.append(f"{column} {operator} ({literals})")
            if operator == "=" and is_float:
                conditions.append(f"{column} <=> {literals}")
        if case.data_type == pa.string():
            conditions += [f"{column} LIKE 'x%'", f"{column} LIKE 'b%'"]
    return conditions


def _literal(value: Any, data_type: str) -> str:
    match data_type:
        case "binary":
            return f"X'{value.hex()}'"
        case "interval year to month":
            return f"make_ym_interval(0, {value})"
        case "interval day to second":
            return f"make_dt_interval({value // 86_400_000_000}, 0, 0, {value % 86_400_000_000 / 1e6:.6f})"
    text = skipping.text(value).replace("\0", "\\0")
    return f"cast('{text}' AS {data_type})"


def _type(case: Case) -> str:
    nested = {"struct": "struct<x: {}>", "list": "array<{}>", "map": "map<string, {}>"}
    return nested.get(case.place, "{}").format(case.spark)


def _pushed_down(frame: DataFrame, conditions: list[str]) -> list[list[int]]:
    """Return the ids of the rows that each condition finds as the filter of its own scan."""
    found: list[list[int]] = []
    for part in _batched(conditions, _FILTERS_PER_QUERY):
        queries = (f"SELECT {index} AS i, id FROM {{rows}} WHERE {one}" for index, one in enumerate(part))
        answer = frame.sparkSession.sql(" UNION ALL ".join(queries), rows=frame).toArrow()
        found += [answer["id"].filter(pc.equal(answer["i"], index)).to_pylist() for index in range(len(part))]
    return found


def _evaluated(frame: DataFrame, conditions: list[str]) -> list[list[int]]:
    """Return the ids of the rows that each condition finds in all rows of the source."""
    lists = (f"collect_list(IF({one}, id, NULL))" for one in conditions)
    [answer] = frame.selectExpr(*lists).collect()
    return list(answer)


def _batched(values: Iterable[Any], size: int) -> Iterator[tuple[Any, ...]]:
    rest = iter(values)
    while part := tuple(islice(rest, size)):
        yield part
