# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for APIs that an older PySpark lacks: a test that uses a stand-in is skipped."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, GroupedData, PandasCogroupedOps, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.udf import UserDefinedFunction

from tests.support.spark import SPARK_VERSION


def needs_spark(version: tuple[int, int], what: str) -> None:
    """Skip the test on an older Spark, which lacks `what`."""
    if version > SPARK_VERSION:
        pytest.skip(f"pyspark {pyspark.__version__} has no {what}")


_SQL_SINCE_4_0 = re.compile(r"=>|PARTITION BY|SINGLE PARTITION")


def needs_spark_for(query: str) -> None:
    """Skip the test if the query uses syntax for table functions that this Spark's SQL does not have."""
    if found := _SQL_SINCE_4_0.search(query):
        needs_spark((4, 0), f"{found[0]} in calls of Python functions")


class _Later:
    """Stand-in for a function kind that this Spark lacks, for its decorator, and for the function."""

    def __init__(self, since: tuple[int, int], what: str) -> None:
        self._since = since
        self._what = what

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if (arguments and not callable(arguments[0])) or any(isinstance(value, Column) for value in named.values()):
            needs_spark(self._since, self._what)
        return self


def _unless_later(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def make_or_stand_in(*arguments: Any, **options: Any) -> Any:
        later = [value for value in (*arguments, *options.values()) if isinstance(value, _Later)]
        return later[0] if later else make(*arguments, **options)

    return make_or_stand_in


def _skipping(version: tuple[int, int], what: str) -> Callable[..., Any]:
    """Return a method that skips the test that calls it."""

    def skip(*_arguments: Any, **_options: Any) -> None:
        needs_spark(version, what)

    return skip


def _without_named_arguments(wrapped: Callable[..., Any]) -> Callable[..., Any]:
    """Make calls with named arguments skip the test."""

    @functools.wraps(wrapped)
    def make(self: Any) -> Any:
        function = wrapped(self)

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            if named:
                needs_spark((4, 0), "named arguments of Python functions")
            return function(*arguments)

        return call

    return make


def _to_arrow(frame: DataFrame) -> pa.Table:
    batches = frame._collect_as_arrow()
    # Batches carry more than the schema: the time zone, and which columns contain no nulls.
    return pa.Table.from_batches(batches, None if batches else to_arrow_schema(frame.schema))


def _also_of_sessions(in_child_threads: Callable[..., Any]) -> Callable[..., Any]:
    """Accept a session as an argument too, as the decorator has done since 4.0."""

    @functools.wraps(in_child_threads)
    def decorate(target: Any) -> Any:
        return in_child_threads if isinstance(target, SparkSession) else in_child_threads(target)

    return decorate


def supply_what_is_missing() -> None:
    """Put stand-ins into `pyspark.sql`; call this before any test module is imported."""
    if SPARK_VERSION < (4, 0):
        missing: list[tuple[type, str]] = [(DataFrame, "lateralJoin"), (DataFrame, "asTable"), (Column, "outer")]
        missing += [(GroupedData, "applyInArrow"), (PandasCogroupedOps, "applyInArrow")]
        for owner, name in missing:
            setattr(owner, name, _skipping((4, 0), name))
        pyspark.inheritable_thread_target = _also_of_sessions(pyspark.inheritable_thread_target)
        DataFrame.toArrow = _to_arrow
        for name in ("AnalyzeArgument", "AnalyzeResult", "PartitioningColumn", "SkipRestOfInputTableException"):
            setattr(F, name, type(name, (Exception,), {}))
        # Captured errors of Java override getErrorClass.
        PySparkException.getCondition = lambda error: error.getErrorClass()
        UserDefinedFunction._wrapped = _without_named_arguments(UserDefinedFunction._wrapped)
    if SPARK_VERSION < (4, 1):
        later = _Later((4, 1), "arrow_udf")
        F.arrow_udf = lambda *_arguments, **_options: later
        F.arrow_udtf = lambda *_arguments, **_options: _Later((4, 1), "arrow_udtf")
        F.ArrowUDFType = type("ArrowUDFType", (), {"SCALAR": later, "SCALAR_ITER": later, "GROUPED_AGG": later})
    if SPARK_VERSION < (4, 2):
        iterator = _Later((4, 2), "iterators of a group's batches in aggregates")
        F.PandasUDFType.GROUPED_AGG_ITER = F.ArrowUDFType.GROUPED_AGG_ITER = iterator
        F.pandas_udf, F.arrow_udf = _unless_later(F.pandas_udf), _unless_later(F.arrow_udf)
