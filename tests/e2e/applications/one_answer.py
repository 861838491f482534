# SPDX-License-Identifier: Apache-2.0
"""Functions of docs/examples, called by SQL and the DataFrame API in a classic session and over Spark Connect."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.connect.session import SparkSession as Client
from pyspark.sql.pandas.types import from_arrow_schema

from tests.e2e.applications.connect import CONNECT, listening_port
from tests.e2e.named import before_tables
from tests.support.example_functions import (
    AGGREGATE_FAILURES,
    FAILURES,
    TABLE_FAILURES,
    Columns,
    author,
    author_rows,
    columns_of,
    of_kind,
)
from tests.support.spark import ENDPOINT, SPARK_VERSION, local_spark
from updraft.functions import Kind
from updraft.spark import functions as U

_CATALOG = {"spark.sql.catalog.updraft": "io.updraft.spark.FunctionCatalog"}

# Either kind of session; they share no class.
Session: TypeAlias = Any


def _frame(session: Session, columns: Columns) -> DataFrame:
    """Return the columns as `_0`, `_1` and so on, which SQL knows as `given`."""
    names = [f"_{number}" for number in range(len(columns))]
    table = pa.table(list(columns), names)
    frame: DataFrame
    if SPARK_VERSION >= (4, 0):
        frame = session.createDataFrame(table)
    else:
        rows = [tuple(row.values()) for row in table.to_pylist()]
        frame = session.createDataFrame(rows, from_arrow_schema(table.schema))
    frame.createOrReplaceTempView("given")
    return frame


def _by_sql(session: Session, name: str, columns: Columns) -> list[Any]:
    arguments = ", ".join(_frame(session, columns).columns)
    return _values(session.sql(f"SELECT updraft.default.{name}({arguments}) FROM given"))


def _by_call(session: Session, name: str, columns: Columns) -> list[Any]:
    frame = _frame(session, columns)
    return _values(frame.select(U.call(name, *frame.columns)))


Caller: TypeAlias = Callable[[Session, str, Columns], list[Any]]
_CALLERS: dict[str, Caller] = {"SQL": _by_sql, "DataFrame API": _by_call}


def _values(frame: DataFrame) -> list[Any]:
    return [row[0] for row in frame.collect()]


Rows: TypeAlias = list[tuple[int, dict[str, Any]]]


def _rows_by_sql(session: Session, name: str, column: pa.Array) -> Rows:
    _numbered(session, column)
    return _rows(session, name, "given")


def _rows_of_frame(session: Session, name: str, column: pa.Array) -> Rows:
    frame = _numbered(session, column)
    if SPARK_VERSION < (4, 0):
        # Spark Connect clients 3.5 do not accept frames as arguments of a query.
        frame.createOrReplaceTempView("frame")
        return _rows(session, name, "frame")
    return _rows(session, name, "{frame}", frame=frame)


_TABLE_CALLERS: dict[str, Callable[[Session, str, pa.Array], Rows]] = {
    "SQL": _rows_by_sql,
    "DataFrame API": _rows_of_frame,
}


def _numbered(session: Session, column: pa.Array) -> DataFrame:
    return _frame(session, [pa.array(range(len(column))), column])


def _rows(session: Session, name: str, given: str, **frames: DataFrame) -> Rows:
    with before_tables(session) as catalog:
        query = f"SELECT _0, struct(results.*) FROM {given}, LATERAL {catalog}{name}(_1) AS results"
        return [(number, row.asDict()) for number, row in session.sql(query, **frames).collect()]


def _difference(answer: object, expected: object) -> str:
    return "" if answer == expected else f"{answer} instead of {expected}"


def _error(call: Callable[[], object]) -> str:
    try:
        answer = call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"no error, but {answer}"


def _found(session: Session) -> Iterator[tuple[str, str]]:
    """Yield the differences from the authors' answers, and from the expected errors."""
    for how, caller in _CALLERS.items():
        for name in (*of_kind(Kind.SCALAR), *of_kind(Kind.AGGREGATE)):
            yield f"{name}, {how}", _difference(caller(session, name, columns_of(name)), author(name))
        for case, failure in {**FAILURES, **AGGREGATE_FAILURES}.items():
            yield f"{case}, {how}", _error(functools.partial(caller, session, failure.name, failure.columns))
    for how, table_caller in _TABLE_CALLERS.items():
        for name in of_kind(Kind.TABLE):
            yield f"{name}, {how}", _difference(table_caller(session, name, *columns_of(name)), author_rows(name))
        for case, failure in TABLE_FAILURES.items():
            yield f"{case}, {how}", _error(functools.partial(table_caller, session, failure.name, *failure.columns))


def main(endpoint: str) -> None:
    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = "a token"
    server = local_spark("one-answer", connector=True, conf={**CONNECT, **_CATALOG, ENDPOINT: endpoint})
    found = {f"{case}, classic": text for case, text in _found(server)}
    port = listening_port(server)
    # The mode that `builder.remote` sets for PySpark's functions if no server runs in the same process.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    client: Client = Client.builder.remote(f"sc://localhost:{port}").create()
    found |= {f"{case}, Connect": text for case, text in _found(client)}
    client.stop()
    del os.environ["SPARK_CONNECT_MODE_ENABLED"]
    print(json.dumps(found))
    server.stop()


if __name__ == "__main__":
    main(sys.argv[1])
