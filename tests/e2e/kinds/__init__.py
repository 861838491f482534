# SPDX-License-Identifier: Apache-2.0
"""Kinds of functions in the differential suite: a new kind is one entry in the file of its family."""

from __future__ import annotations

from dataclasses import replace

from tests.e2e.kinds import folds, groups, maps, scalar, table_functions
from tests.e2e.kinds.kind import Kind
from tests.support.spark import SPARK_VERSION

# Type cases that Spark 4.0 and before refuse in addition to those that later versions refuse.
_REFUSED_UNTIL_4_0 = {"udf_arrow": {"day_time_interval"}, "udtf_arrow_lateral": {"day_time_interval"}}
# Type cases that Spark 3.5 accepts and later versions refuse.
_TAKEN_IN_3_5 = {"udf_pickled": {"year_month_interval"}, "udtf_lateral": {"year_month_interval"}}


def _of_this_spark(kind: Kind) -> Kind:
    if SPARK_VERSION >= (4, 1):
        return kind
    refuses = kind.refuses | _REFUSED_UNTIL_4_0.get(kind.name, set())
    return replace(kind, refuses=refuses - (_TAKEN_IN_3_5.get(kind.name, set()) if SPARK_VERSION < (4, 0) else set()))


_ALL = [*scalar.KINDS, *maps.KINDS, *groups.KINDS, *folds.KINDS, *table_functions.KINDS]
# Values and batches reach these kinds, and those with a key, in the same way as another kind. Only the bounds of the
# window differ, or the key, which is an integer here.
_LIKE_OTHERS = ("window_pandas_unbounded", "window_arrow_unbounded")


def takes_the_way_of_another(kind: Kind) -> bool:
    """Return whether only a campaign sends every type through this kind."""
    return kind.name.endswith("_key") or kind.name in _LIKE_OTHERS


KINDS: list[Kind] = [_of_this_spark(kind) for kind in _ALL if kind.since <= SPARK_VERSION]
