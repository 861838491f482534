# SPDX-License-Identifier: Apache-2.0
"""Lets tests be written for the newest PySpark: what an older one lacks skips the test that uses it."""

from __future__ import annotations

from typing import Any

import pyspark
import pytest
from pyspark.sql import functions as F

from tests.support.spark import SPARK_VERSION


def needs_spark(version: tuple[int, int], what: str) -> None:
    """Skip the test on an older Spark, which lacks `what`."""
    if version > SPARK_VERSION:
        pytest.skip(f"pyspark {pyspark.__version__} has no {what}")


class _ArrowUdf:
    """What `arrow_udf` would make, or the decorator that would make it."""

    def __call__(self, argument: Any, *_: Any) -> Any:
        if not callable(argument):
            needs_spark((4, 1), "arrow_udf")
        return self


class _ArrowUDFType:
    SCALAR = SCALAR_ITER = GROUPED_AGG = GROUPED_AGG_ITER = None


def supply_what_is_missing() -> None:
    """Put stand-ins into `pyspark.sql.functions`; before any test module is imported."""
    if not hasattr(F, "arrow_udf"):
        F.arrow_udf = lambda *_arguments, **_options: _ArrowUdf()
        F.ArrowUDFType = _ArrowUDFType
