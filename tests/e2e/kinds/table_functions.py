# SPDX-License-Identifier: Apache-2.0
"""Kinds that give a table: UDTFs that are pickled, Arrow-optimised or Arrow by nature, with scalars or with a table."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from tests.e2e.kinds.kind import Change, Kind, columns_of, result_type, rows_type
from tests.e2e.kinds.seen import rows_in_arrow, text
from tests.e2e.types import TypeCase
from tests.support.spark import SPARK_VERSION

Maker = Callable[[type, Any], Any]


def _pickled(handler: type, result: Any) -> Any:
    return F.udtf(handler, returnType=result, useArrow=False)


def _arrow_optimised(handler: type, result: Any) -> Any:
    return F.udtf(handler, returnType=result, useArrow=True)


def _arrow(handler: type, result: Any) -> Any:
    return F.arrow_udtf(handler, returnType=result)


def _handler(rows: Callable[..., Iterator[Any]]) -> type:
    class Handler:
        def eval(self, *values: Any) -> Iterator[Any]:
            yield from rows(*values)

    return Handler


def _on_table(rows: Callable[[Any], Iterator[Any]]) -> type:
    class Handler:
        def eval(self, row: Row) -> Iterator[Any]:
            yield from rows(row)

    return Handler


def _both(*values: Any) -> Iterator[tuple[Any, ...]]:
    yield tuple(result for value in values for result in (value, text(value)))


def _lateral_types(make: Maker, frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
    function = make(_handler(_both), result_type(cases))
    names = columns_of(cases)
    return _joined(frame.select("id", *names), function, names).drop(*names)


def _joined(frame: DataFrame, function: Any, names: Sequence[str]) -> DataFrame:
    """Return the frame with the rows that a table function gives for each of its rows."""
    if SPARK_VERSION >= (4, 0):
        return frame.lateralJoin(function(*(F.col(name).outer() for name in names)))
    # Before 4.0, lateral joins exist only in SQL.
    spark = frame.sparkSession
    spark.udtf.register("of_each_row", function)
    frame.createOrReplaceTempView("rows_to_join")
    arguments = ", ".join(f"rows_to_join.`{name}`" for name in names)
    return spark.sql(f"SELECT * FROM rows_to_join, LATERAL of_each_row({arguments})")


def _table_types(make: Maker, frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
    def both(row: Row) -> Iterator[tuple[Any, ...]]:
        yield (row[0], *next(_both(*row[1:])))

    table = frame.select("id", *columns_of(cases)).asTable().partitionBy("id")
    return make(_on_table(both), rows_type(cases))(table)


def _arrow_types(frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
    names = rows_type(cases).names

    class Handler:
        def eval(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
            yield pa.Table.from_batches([rows_in_arrow(batch, names)])

    return _arrow(Handler, rows_type(cases))(frame.select("id", *columns_of(cases)).asTable())


def _row_function(change: Change) -> type:
    def rows(value: Any) -> Iterator[tuple[Any]]:
        yield (change(value["id"] if isinstance(value, Row) else value),)

    return _handler(rows)


def _batch_function(change: Change) -> type:
    class Handler:
        def eval(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
            yield pa.table({"x": change(batch.column("id"))})

    return Handler


def _lateral(make: Maker, frame: DataFrame, handler: type) -> DataFrame:
    return _joined(frame, make(handler, "x bigint"), ["id"])


def _over_table(make: Maker, frame: DataFrame, handler: type) -> DataFrame:
    return make(handler, "x bigint")(frame.asTable().partitionBy("k"))


def _over_batches(frame: DataFrame, handler: type) -> DataFrame:
    return _arrow(handler, "x bigint")(frame.asTable())


def _results(*rows: Any) -> type:
    return _handler(lambda *_: iter(rows))


_WRONG_ROWS = {
    "type": _results(("text",)),
    "length": _results((1, 2)),
    "no_tuple": _results(1),
}


def _wrong_table(table: Any) -> type:
    class Handler:
        def eval(self, batch: pa.RecordBatch) -> Iterator[Any]:
            yield table

    return Handler


_WRONG_TABLES = {
    "type": _wrong_table(pa.table({"x": ["text"]})),
    "names": _wrong_table(pa.table({"other": [1]})),
    "no_table": _wrong_table(1),
}


def _kinds(name: str, make: Maker) -> list[Kind]:
    lateral = functools.partial(_lateral, make)
    over_table = functools.partial(_over_table, make)
    return [
        Kind(f"{name}_lateral", functools.partial(_lateral_types, make), _row_function, lateral, _WRONG_ROWS),
        Kind(
            f"{name}_table",
            functools.partial(_table_types, make),
            _row_function,
            over_table,
            over_groups=True,
            since=(4, 0),
        ),
    ]


KINDS = [
    *_kinds("udtf", _pickled),
    *_kinds("udtf_arrow", _arrow_optimised),
    Kind("arrow_udtf", _arrow_types, _batch_function, _over_batches, _WRONG_TABLES, since=(4, 1)),
]
