# SPDX-License-Identifier: Apache-2.0
"""Lets tests be written for the newest PySpark: what an older one lacks skips the test that uses it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pyspark
import pytest
from pyspark.sql import Column
from pyspark.sql import functions as F

from tests.support.spark import SPARK_VERSION


def needs_spark(version: tuple[int, int], what: str) -> None:
    """Skip the test on an older Spark, which lacks `what`."""
    if version > SPARK_VERSION:
        pytest.skip(f"pyspark {pyspark.__version__} has no {what}")


class _Later:
    """A kind of function that came later, what would make one, and what would be made."""

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


def supply_what_is_missing() -> None:
    """Put stand-ins into `pyspark.sql.functions`; before any test module is imported."""
    if SPARK_VERSION < (4, 1):
        later = _Later((4, 1), "arrow_udf")
        F.arrow_udf = lambda *_arguments, **_options: later
        F.arrow_udtf = lambda *_arguments, **_options: _Later((4, 1), "arrow_udtf")
        F.ArrowUDFType = type("ArrowUDFType", (), {"SCALAR": later, "SCALAR_ITER": later, "GROUPED_AGG": later})
    if SPARK_VERSION < (4, 2):
        iterator = _Later((4, 2), "iterators of a group's batches in aggregates")
        F.PandasUDFType.GROUPED_AGG_ITER = F.ArrowUDFType.GROUPED_AGG_ITER = iterator
        F.pandas_udf, F.arrow_udf = _unless_later(F.pandas_udf), _unless_later(F.arrow_udf)
