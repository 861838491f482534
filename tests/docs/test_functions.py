# SPDX-License-Identifier: Apache-2.0
"""docs/reference/functions.md is complete: it has a row for every kind of function that this PySpark knows."""

from __future__ import annotations

import re

from pyspark.rdd import PythonEvalType

from tests.support.paths import REPOSITORY

_KIND = re.compile(r"`(SQL_\w+)`")


def test_every_kind_of_this_pyspark_has_one_row() -> None:
    rows = _KIND.findall((REPOSITORY / "docs/reference/functions.md").read_text())
    kinds = {name for name in vars(PythonEvalType) if name.startswith("SQL_")}
    assert kinds <= set(rows)
    assert len(rows) == len(set(rows))
