# SPDX-License-Identifier: Apache-2.0
"""The kinds of functions of the differential suite: a new kind is one entry in the file of its family."""

from __future__ import annotations

from dataclasses import replace

from tests.e2e.kinds import folds, groups, maps, scalar, table_functions
from tests.e2e.kinds.kind import Kind
from tests.support.spark import SPARK_VERSION

# What Spark 4.0 refuses beside what later ones do.
_REFUSED_IN_4_0 = {"udf_arrow": {"day_time_interval"}, "udtf_arrow_lateral": {"day_time_interval"}}


def _of_this_spark(kind: Kind) -> Kind:
    if SPARK_VERSION >= (4, 1):
        return kind
    return replace(kind, refuses=kind.refuses | _REFUSED_IN_4_0.get(kind.name, set()))


_ALL = [*scalar.KINDS, *maps.KINDS, *groups.KINDS, *folds.KINDS, *table_functions.KINDS]
KINDS: list[Kind] = [_of_this_spark(kind) for kind in _ALL if kind.since <= SPARK_VERSION]
