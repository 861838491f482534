# SPDX-License-Identifier: Apache-2.0
"""Lets tests be written for the newest PySpark: what an older one lacks skips the test that uses it."""

from __future__ import annotations

from typing import Any

import pyspark
import pytest
from pyspark.sql import functions as F


class _ArrowUdf:
    """What `arrow_udf` would make, or the decorator that would make it."""

    def __call__(self, argument: Any, *_: Any) -> Any:
        if callable(argument):
            return self
        pytest.skip(f"pyspark {pyspark.__version__} has no arrow_udf")


class _ArrowUDFType:
    SCALAR = SCALAR_ITER = GROUPED_AGG = GROUPED_AGG_ITER = None


def supply_what_is_missing() -> None:
    """Put stand-ins into `pyspark.sql.functions`; before any test module is imported."""
    if not hasattr(F, "arrow_udf"):
        F.arrow_udf = lambda *_arguments, **_options: _ArrowUdf()
        F.ArrowUDFType = _ArrowUDFType
