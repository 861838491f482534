# SPDX-License-Identifier: Apache-2.0
"""All cases of the benchmark that this PySpark supports, with one module for each family of kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.programs.bench.case import Case
from tests.programs.bench.cases import folds, groups, maps, scalar, scenarios, table_functions
from tests.support.spark import SPARK_VERSION

# Cases by the file name of their chart. One chart with all cases would be too long to read.
_BY_CHART: Mapping[str, Sequence[Case]] = {
    "udf": [*scalar.CASES, *maps.CASES],
    "udf-scenarios": scenarios.CASES,
    "udf-groups": [*groups.CASES, *folds.CASES, *table_functions.CASES],
}
CHARTS = {name: [case for case in cases if case.since <= SPARK_VERSION] for name, cases in _BY_CHART.items()}
CASES = [case for cases in CHARTS.values() for case in cases]
