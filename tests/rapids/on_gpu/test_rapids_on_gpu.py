# SPDX-License-Identifier: Apache-2.0
"""Each kind of function between GPU stages gives stock's answers, in either order of the extensions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.rapids.queries import QUERIES, write_rows
from tests.support.paths import BUILD
from tests.support.spark import ENABLED, executed_plan, flight_operators, runtime_confs, stock_operators

_RAPIDS = "spark.rapids.sql.enabled"
_ADAPTIVE = "spark.sql.adaptive.enabled"
_ROWS = 200_000

# The plug-in unpacks and loads its libraries.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="session")
def plans() -> Iterator[dict[str, list[str]]]:
    """Collect the plans of all queries, and write them to build/reports/rapids-gpu-plans.json."""
    found: dict[str, list[str]] = {}
    yield found
    (BUILD / "reports").mkdir(parents=True, exist_ok=True)
    (BUILD / "reports/rapids-gpu-plans.json").write_text(json.dumps(found, indent=1) + "\n")


@pytest.fixture(scope="session")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("rapids") / "rows"
    with runtime_confs(spark, {_RAPIDS: "false"}):
        write_rows(spark, str(path), _ROWS)
    return str(path)


def _answer(frame: DataFrame) -> list[str]:
    return sorted(
        str([round(value, 3) if isinstance(value, float) else value for value in row]) for row in frame.collect()
    )


def _operators(plan: str) -> list[str]:
    """Return the operators that say where a stage runs and how rows cross to the next one."""
    return re.findall(
        r"\b(Gpu\w+|Flight\w+|\w*EvalPython\w*|\w*InPandas\w*|\w*InArrow\w*|ColumnarToRow|RowToColumnar)\b", plan
    )


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("name", QUERIES)
def test_functions_between_gpu_stages_give_stock_s_answers(
    spark: SparkSession,
    rows: str,
    plans: dict[str, list[str]],
    request: pytest.FixtureRequest,
    name: str,
    adaptive: str,
) -> None:
    query = QUERIES[name]
    with runtime_confs(spark, {_RAPIDS: "false", ENABLED: "false"}):
        stock = _answer(query(spark, rows))
    with runtime_confs(spark, {_ADAPTIVE: adaptive}):
        frame = query(spark, rows)
        found, plan = _answer(frame), executed_plan(frame)
    plans[request.node.name] = _operators(plan)
    assert found == stock
    assert flight_operators(plan)
    assert not stock_operators(plan)
    assert any(operator.startswith("Gpu") for operator in _operators(plan)), plan


def test_rows_of_functions_are_written_and_read_on_the_gpu(spark: SparkSession, rows: str, tmp_path: Path) -> None:
    frame = QUERIES["pandas"](spark, rows)
    frame.write.parquet(str(tmp_path / "out"))
    written = spark.read.parquet(str(tmp_path / "out"))
    with runtime_confs(spark, {_RAPIDS: "false", ENABLED: "false"}):
        assert _answer(written) == _answer(QUERIES["pandas"](spark, rows))
