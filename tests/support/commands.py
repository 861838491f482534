# SPDX-License-Identifier: Apache-2.0
"""Commands with a Python function inside, and a comparison of each command's outcome on stock and on a pool."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.pool import LocalPool
from tests.support.spark import ENABLED, ENDPOINT, runtime_confs, stock_confs
from tests.support.waiting import until


@dataclass(frozen=True)
class Place:
    """Name of a table that does not exist yet, and an empty directory; each side has its own."""

    table: str
    directory: Path

    def fill(self, sql: str) -> str:
        """Return `sql` with its {t} and {d} filled in."""
        return sql.format(t=self.table, d=self.directory)


Run = Callable[[SparkSession, Place], object]


@dataclass(frozen=True)
class Command:
    """Command that calls the functions `f` (twice a number) and `big` (whether it exceeds 2).

    Attributes:
        run: SQL, or a function that returns what the API returned.
        before: SQL that runs first, without a function.
        left: query over what the command leaves behind.
        calls: whether the command itself runs a function, rather than something later or nothing.
        since: first Spark whose SQL has the command.
    """

    run: str | Run
    before: Sequence[str] = ()
    left: str = "SELECT * FROM {t}"
    calls: bool = True
    since: tuple[int, int] = (3, 5)


@dataclass(frozen=True)
class Outcome:
    """Result of a command: what it returned, its error, and the rows that it left."""

    returned: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    left: Sequence[str] | str = ()


def register_functions(spark: SparkSession) -> None:
    """Register `f` and `big` with a session."""
    spark.udf.register("f", F.udf(lambda number: None if number is None else number * 2, "bigint", useArrow=False))
    spark.udf.register("big", F.udf(lambda number: number is not None and number > 2, "boolean", useArrow=False))


def outcome(spark: SparkSession, command: Command, place: Place, confs: Mapping[str, str]) -> Outcome:
    """Run a command under `confs` and return its result, without the names of `place` in any text."""

    def told(text: object) -> str:
        neutral = str(text).replace(place.table, "{t}").replace(str(place.directory), "{d}")
        return re.sub(r"#\d+L?|\b[0-9a-f]{8}-[0-9a-f-]{27}\b", "#", neutral)

    def error_of(error: Exception) -> str:
        condition = error.getCondition() if isinstance(error, PySparkException) else None
        return f"{type(error).__name__} {condition or told(str(error).splitlines()[0])}"

    for statement in command.before:
        spark.sql(place.fill(statement))
    returned: dict[str, Any] = {}
    failure = ""
    with runtime_confs(spark, confs):
        try:
            answer = spark.sql(place.fill(command.run)) if isinstance(command.run, str) else command.run(spark, place)
            returned = _each_way(answer, told) if isinstance(answer, DataFrame) else {"value": told(answer)}
        except (PySparkException, Py4JJavaError) as error:
            failure = error_of(error)
        try:
            left: Sequence[str] | str = sorted(
                told(tuple(row)) for row in spark.sql(place.fill(command.left)).collect()
            )
        except (PySparkException, Py4JJavaError) as error:
            left = error_of(error)
    return Outcome(returned, failure, left)


def _each_way(frame: DataFrame, told: Callable[[object], str]) -> dict[str, Any]:
    """Return the rows of a frame by every method that reads them."""

    def rows(some: Any) -> list[str]:
        return sorted(told(tuple(row)) for row in some)

    first = frame.head()
    return {
        "columns": [told(name) for name in frame.columns],
        "collect": rows(frame.collect()),
        "take": len(frame.take(2)),
        "tail": len(frame.tail(2)),
        "iterator": rows(frame.toLocalIterator()),
        "head": None if first is None else len(first),
    }


def assert_same_outcome(spark: SparkSession, pool: LocalPool, command: Command, directory: Path, table: str) -> None:
    """Fail if a command's outcome differs between stock and `pool`, or if its functions did not run on the pool."""
    sides = {"stock": {ENABLED: "false", **stock_confs()}, "pool": {ENABLED: "true", ENDPOINT: pool.tcp_endpoint}}
    before = _exchanges(pool)
    outcomes = []
    for side, confs in sides.items():
        place = Place(f"{table}_{side}", directory / side)
        place.directory.mkdir()
        outcomes.append(outcome(spark, command, place, confs))
    stock, ours = outcomes
    assert ours == stock, f"on the pool: {ours}\non stock: {stock}"
    if command.calls:
        assert not stock.error, stock.error
        until("the functions have run on the pool", lambda: _exchanges(pool) > before)


def _exchanges(pool: LocalPool) -> float:
    """Return how many exchanges of a pool have ended."""
    return sum(map(float, re.findall(r"^updraft_exchanges_total\{.*\} (\S+)$", pool.page("/metrics")[0], re.MULTILINE)))
