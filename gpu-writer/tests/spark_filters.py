# SPDX-License-Identifier: Apache-2.0
"""Filters over the cases of `skipping`: the rows that Spark finds in files beside those that it finds in memory."""

import datetime as dt
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import skipping
from pyspark.sql import DataFrame, SparkSession
from skipping import Case


def assert_spark_finds(spark: SparkSession, path: str, kind: str, rows: pa.Table, cases: list[Case]) -> None:
    """Compare the rows that Spark finds in the files at `path` by every filter with those that it finds in `rows`."""
    schema = ", ".join(["id bigint", *(f"{case.name} {_type(case)}" for case in cases)])
    memory = spark.createDataFrame(rows.select(["id", *(case.name for case in cases)]), schema)
    conditions = _conditions(cases)
    there = _found(memory, conditions, pushed_down=False)
    # With its own schema: Spark does not even open a file with a half float.
    found = _found(spark.read.schema(schema).format(kind).load(path), conditions, pushed_down=True)
    wrong = skipping.wrong(conditions, found, there)
    assert not wrong, wrong


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
        for operator, value in skipping.filters(case):
            literal = _literal(value, case.spark)
            if operator != "<>" or is_float:
                conditions.append(f"{column} {operator} ({literal})")
            if operator == "=" and is_float:
                conditions.append(f"{column} <=> {literal}")
        if case.data_type == pa.string():
            conditions += [f"{column} LIKE 'x%'", f"{column} LIKE 'b%'"]
    return conditions


def _literal(value: Any, data_type: str) -> str:
    match value:
        case bytes():
            return f"X'{value.hex()}'"
        case dt.timedelta():
            return f"INTERVAL '{value.days} 00:00:00' DAY TO SECOND"
    text = skipping.text(value).replace("\0", "\\0")
    return f"cast('{text}' AS {data_type})"


def _type(case: Case) -> str:
    nested = {"struct": "struct<x: {}>", "list": "array<{}>", "map": "map<string, {}>"}
    return nested.get(case.place, "{}").format(case.spark)


def _found(frame: DataFrame, conditions: list[str], *, pushed_down: bool) -> list[list[int]]:
    """The ids of the rows that each condition finds. The source sees the condition if it is `pushed_down`."""
    frame.createOrReplaceTempView("rows")
    found: list[list[int]] = []
    for part in _batched(conditions, 100):
        if pushed_down:
            queries = (f"SELECT {index} AS i, id FROM rows WHERE {one}" for index, one in enumerate(part))
            answer = frame.sparkSession.sql(" UNION ALL ".join(queries)).toArrow()
            found += [answer["id"].filter(pc.equal(answer["i"], index)).to_pylist() for index in range(len(part))]
        else:
            lists = (f"collect_list(IF({one}, id, NULL))" for one in part)
            found += frame.sparkSession.sql(f"SELECT {', '.join(lists)} FROM rows").first()
    return found


def _batched(values: Iterable[Any], size: int) -> Iterator[tuple[Any, ...]]:
    rest = iter(values)
    while part := tuple(islice(rest, size)):
        yield part
