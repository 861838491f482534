# SPDX-License-Identifier: Apache-2.0
"""Two sides of the differential suite, and the outcome of a query on one of them.

A query is a function from a session to a DataFrame, because a DataFrame keeps the plan that it was first given. Both
sides share one JVM: runtime confs switch Updraft, so that the suite pays for one start-up.
"""

from __future__ import annotations

import pickle
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.support.spark import (
    ENABLED,
    ENDPOINT,
    executed_plan,
    flight_operators,
    runtime_confs,
    stock_confs,
    stock_operators,
)

Query = Callable[[SparkSession], DataFrame]

# Py4J includes the number of the called object.
_CALL_FAILED = "An error occurred while calling "
_DAEMON_MODULE = "spark.python.daemon.module"


@dataclass(frozen=True)
class Answer:
    """Rows and plan of a query that ran, or the error of a failed one."""

    columns: Sequence[str] = ()
    rows: Sequence[tuple[Any, ...]] = ()
    plan: str = ""
    error: Exception | None = field(default=None, compare=False)

    def column(self, name: str) -> list[str]:
        """Return the values of a column in a form that distinguishes NaN, -0.0 and types."""
        index = list(self.columns).index(name)
        return [canonical(row[index]) for row in self.rows]

    @property
    def ran_on_the_pool(self) -> bool:
        """True when every Python operator of the plan is one of the connector's."""
        return bool(flight_operators(self.plan)) and not stock_operators(self.plan)


@dataclass(frozen=True)
class Sides:
    """Session that runs a query on stock PySpark or on a pool."""

    spark: SparkSession
    endpoints: Mapping[str, str]
    compares_stock_with_itself: bool

    def stock(self, query: Query, confs: Mapping[str, str] | None = None) -> Answer:
        """Run on Spark's own Python workers."""
        with _warm_workers(self.spark):
            return self._run(query, {**self._confs_of_stock(), **(confs or {})})

    def updraft(self, query: Query, transport: str = "tcp", confs: Mapping[str, str] | None = None) -> Answer:
        """Run on the pool over `transport`."""
        if self.compares_stock_with_itself:
            return self.stock(query, confs)
        return self._run(query, {ENABLED: "true", ENDPOINT: self.endpoints[transport], **(confs or {})})

    def assert_same(self, query: Query, transport: str = "tcp", confs: Mapping[str, str] | None = None) -> Answer:
        """Check that both sides give the same rows in the same order, and that the pool really ran the functions."""
        stock, ours = self.stock(query, confs), self.updraft(query, transport, confs)
        if stock.error or ours.error:
            raise AssertionError("the query failed") from (stock.error or ours.error)
        self.assert_ran_on_the_pool(ours)
        assert ours.columns == stock.columns
        assert [canonical(row) for row in ours.rows] == [canonical(row) for row in stock.rows]
        return ours

    def assert_refused_alike(self, query: Query, confs: Mapping[str, str] | None = None) -> None:
        """Check that both sides raise the same error with the same words, except numbers of columns and variables."""
        stock, ours = self.stock(query, confs), self.updraft(query, confs=confs)
        assert stock.error is not None
        assert type(ours.error) is type(stock.error), ours.error
        assert _reason(ours.error) == _reason(stock.error)

    def assert_ran_on_the_pool(self, answer: Answer) -> None:
        """Check that the plan has the connector's operators and none of Spark's; a silent fallback fails here."""
        assert self.compares_stock_with_itself or answer.ran_on_the_pool, answer.plan

    def _confs_of_stock(self) -> dict[str, str]:
        return {ENABLED: "false", **stock_confs()}

    def _run(self, query: Query, confs: Mapping[str, str]) -> Answer:
        with runtime_confs(self.spark, confs):
            frame = None
            try:
                frame = query(self.spark)
                rows = [tuple(row) for row in frame.collect()]
            except (PySparkException, Py4JJavaError, pickle.PicklingError) as error:
                return Answer(plan=_plan_of_failure(frame), error=error)
            return Answer(frame.columns, rows, executed_plan(frame))


@contextmanager
def _warm_workers(spark: SparkSession) -> Iterator[None]:
    """Let Spark fork its workers from a process that has imported what they need: each failure costs it a worker.

    Not a conf of the session, because an application with a daemon of its own stays on stock as a whole.
    """
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set(_DAEMON_MODULE, "tests.e2e.warm_daemon")
    try:
        yield
    finally:
        conf.remove(_DAEMON_MODULE)


def _plan_of_failure(frame: DataFrame | None) -> str:
    """Return the plan of a failed query, or nothing if it failed before it had one."""
    try:
        return executed_plan(frame) if frame is not None else ""
    except (PySparkException, Py4JJavaError):
        return ""


def _reason(error: Exception | None) -> str:
    """Return the JVM's innermost cause, or the first meaningful line if there is none."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(("\tat ", _CALL_FAILED))]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return re.sub(r"(#|\bx_)\d+", r"\1", (causes or lines or [""])[-1 if causes else 0])


def canonical(value: Any) -> str:
    """Return a text that is equal for equal values but distinguishes, unlike `==`, NaN, -0.0, 1 and 1.0 and True."""
    if isinstance(value, float):
        return "nan" if value != value else struct.pack(">d", value).hex()
    if isinstance(value, dict):
        return f"{{{', '.join(f'{canonical(k)}: {canonical(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(canonical, value))})"
    return f"{type(value).__name__} {value!r}"
