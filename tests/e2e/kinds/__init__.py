# SPDX-License-Identifier: Apache-2.0
"""The kinds of functions of the differential suite: a new kind is one entry in the file of its family."""

from __future__ import annotations

from tests.e2e.kinds import folds, groups, maps, scalar, table_functions
from tests.e2e.kinds.kind import Kind
from tests.support.spark import SPARK_VERSION

_ALL = [*scalar.KINDS, *maps.KINDS, *groups.KINDS, *folds.KINDS, *table_functions.KINDS]
KINDS: list[Kind] = [kind for kind in _ALL if kind.since <= SPARK_VERSION]
