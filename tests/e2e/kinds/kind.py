# SPDX-License-Identifier: Apache-2.0
"""Kind of function, as the differential suite describes it; the entries are in the files of this folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from tests.e2e.types import TypeCase
from tests.support.spark import SPARK_VERSION

# Operation of a function of any kind on its values: a number, a pandas Series or an Arrow Array.
Change = Callable[[Any], Any]


# Type cases that Spark's own planner or worker refuses; both sides must refuse them alike.
REFUSED = frozenset({"year_month_interval", "calendar_interval"})
UDT_REFUSED_IN_PANDAS = frozenset({"point_udt"} if SPARK_VERSION >= (4, 2) else ())
# Spark 4.0 rounds integers that pandas has converted to floats.
REFUSED_IN_PANDAS = REFUSED | UDT_REFUSED_IN_PANDAS | ({"bigint_extreme"} if SPARK_VERSION >= (4, 1) else set())


@dataclass(frozen=True, eq=False)
class Kind:
    """Kind of function, as one entry of the matrix.

    `query` sends the columns of type cases through a function, several in one query: the identity, which proves that
    values survive both ways, and `seen`, the text of the arguments, which proves that the function got exactly what
    stock PySpark gives it.

    `function` makes a function of this kind that applies a change to each `id` that it gets, and `apply` runs one over
    a frame with the columns `id` and `k`. `wrong` are functions whose results do not fit; `refuses` are the type cases
    that stock PySpark does not take.

    `over_groups`: Spark shuffles and sorts the input, so it never comes as vectors. `alone`: `query` takes one type
    case.
    """

    name: str
    query: Callable[[DataFrame, Sequence[TypeCase]], DataFrame]
    function: Callable[[Change], Any]
    apply: Callable[[DataFrame, Any], DataFrame]
    wrong: Mapping[str, Any] = field(default_factory=dict)
    refuses: frozenset[str] = REFUSED
    over_groups: bool = False
    alone: bool = False
    since: tuple[int, int] = (3, 5)


def identity_name(case: TypeCase) -> str:
    """Return the name of the result column that holds the returned values."""
    return f"same_{case.name}"


def seen_name(case: TypeCase) -> str:
    """Return the name of the result column that holds what the function saw."""
    return f"seen_{case.name}"


def columns_of(cases: Sequence[TypeCase]) -> list[str]:
    """Return the columns that a query over type cases reads besides `id`."""
    return [case.name for case in cases]


def result_type(cases: Sequence[TypeCase]) -> T.StructType:
    """Return the type of both results of every case."""
    fields = []
    for case in cases:
        fields += [T.StructField(identity_name(case), case.type), T.StructField(seen_name(case), T.StringType())]
    return T.StructType(fields)


def rows_type(cases: Sequence[TypeCase]) -> T.StructType:
    """Return the type of both results of every case, after the row's `id`."""
    return T.StructType([T.StructField("id", T.IntegerType()), *result_type(cases)])
