# SPDX-License-Identifier: Apache-2.0
"""Steps that write a table, run on stock and on Updraft."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.spark import runtime_confs


@dataclass(frozen=True)
class Place:
    """Table of one side, with its directory, and an empty directory `scratch`."""

    table: str
    directory: Path
    scratch: Path

    def fill(self, sql: str) -> str:
        """Return `sql` with the placeholders {t}, {d} and {s} filled in."""
        return sql.replace("{t}", self.table).replace("{d}", str(self.directory)).replace("{s}", str(self.scratch))


Step = str | Callable[[SparkSession, Place], object]


@dataclass(frozen=True)
class Scenario:
    """Steps that write a table.

    Attributes:
        steps: SQL statements, or functions.
        confs: settings of the session.
        by_writer: whether the writer makes all data files; if not, the table format makes them all.
        fails: whether the last step must fail, on both sides.
        since: first Spark version on which stock supports the steps.
    """

    steps: Sequence[Step]
    confs: Mapping[str, str] = field(default_factory=dict)
    by_writer: bool = True
    fails: bool = False
    since: tuple[int, int] = (3, 5)


COLUMNS = "id BIGINT, x BIGINT, k BIGINT, s STRING"
ROWS = "SELECT id, id * 10 AS x, id % 2 AS k, concat('text ', id) AS s FROM range(0, 100, 1, 2)"
INSERT = f"INSERT INTO {{t}} {ROWS}"
UPDATE = "UPDATE {t} SET x = x + 1 WHERE id < 10"
DELETE = "DELETE FROM {t} WHERE id % 7 = 3"
MERGE = (
    "MERGE INTO {t} t USING (SELECT id FROM range(90, 110, 1, 1)) s ON t.id = s.id WHEN MATCHED AND s.id < 95"
    " THEN UPDATE SET x = -1 WHEN MATCHED THEN DELETE"
    " WHEN NOT MATCHED THEN INSERT (id, x, k, s) VALUES (s.id, 0, 1, 'new')"
)


TYPES = (
    "id % 2 = 0 AS flag",
    "cast(id AS tinyint) AS byte",
    "cast(id AS smallint) AS short",
    "cast(id AS int) AS int",
    "cast(id / 7 AS float) AS float",
    "id / 7 AS double",
    "cast(id / 7 AS decimal(9, 2)) AS small_decimal",
    "cast(id AS decimal(30, 5)) AS large_decimal",
    "cast(cast(id AS string) AS binary) AS bytes",
    "date_add(DATE'1970-01-01', cast(id * 300 AS int)) AS day",
    "timestamp_micros(id * 86400000123 - 1) AS at",
    "cast(timestamp_micros(id * 86400000123 - 1) AS timestamp_ntz) AS shown",
    "array(id, NULL) AS list",
    "map(cast(id AS string), id) AS map",
    "named_struct('n', id, 'inner', named_struct('s', concat('text ', id), 'f', id / 3)) AS struct",
)


FOR_FEW_ROWS = {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings for reading a small table: code generation and adaptive execution would take longer than they save."""


def parameters(scenarios: Mapping[str, Scenario], everyday: frozenset[str]) -> list[ParameterSet]:
    """Return the names of scenarios as test parameters; only `make test-formats` runs those missing from `everyday`."""
    return [pytest.param(name, marks=() if name in everyday else pytest.mark.campaign) for name in scenarios]


def run(spark: SparkSession, scenario: Scenario, place: Place, confs: Mapping[str, str]) -> str:
    """Run the steps and return the kind of the last step's error, or an empty text."""
    place.scratch.mkdir(parents=True)
    with runtime_confs(spark, {**scenario.confs, **confs}):
        for number, step in enumerate(scenario.steps, start=1):
            try:
                if isinstance(step, str):
                    spark.sql(place.fill(step))
                else:
                    step(spark, place)
            except (PySparkException, Py4JJavaError) as error:
                if not scenario.fails or number < len(scenario.steps):
                    raise
                return str(error.getCondition() if isinstance(error, PySparkException) else type(error))
    return ""


def rows(spark: SparkSession, query: str) -> list[str]:
    """Return the rows of a query, sorted as texts."""
    return sorted(str(tuple(row)) for row in spark.sql(query).collect())


def source(spark: SparkSession, place: Place) -> Any:
    """Return a stream of ROWS."""
    spark.sql(ROWS).coalesce(1).write.parquet(str(place.scratch / "source"))
    return spark.readStream.schema(COLUMNS).parquet(str(place.scratch / "source"))


def stream_upserts(spark: SparkSession, place: Place) -> None:
    """Merge each batch of a stream of ROWS into the table."""

    def upsert(batch: Any, _: int) -> None:
        batch.createOrReplaceTempView("batch_of_rows")
        batch.sparkSession.sql(
            place.fill(
                "MERGE INTO {t} t USING batch_of_rows s ON t.id = s.id"
                " WHEN MATCHED THEN UPDATE SET x = s.x + 1 WHEN NOT MATCHED THEN INSERT *"
            )
        )

    writer = source(spark, place).writeStream.foreachBatch(upsert).trigger(availableNow=True)
    writer.option("checkpointLocation", str(place.scratch / "checkpoint")).start().awaitTermination(250)
