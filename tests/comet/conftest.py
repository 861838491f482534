# SPDX-License-Identifier: Apache-2.0
"""A pool, and a Spark with both extensions for each order of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.paths import connector_jar
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, EXTENSION, local_spark

_COMET = "org.apache.comet.CometSparkSessionExtensions"
_CONFS = {
    # Comet's native code needs memory outside the heap.
    "spark.memory.offHeap.enabled": "true",
    "spark.memory.offHeap.size": "1g",
    "spark.shuffle.manager": "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager",
    "spark.comet.enabled": "true",
    "spark.comet.exec.enabled": "true",
    # Otherwise Comet leaves tables with tinyint and smallint to Spark, because their values might be unsigned.
    "spark.comet.scan.unsignedSmallIntSafetyCheck": "false",
    "spark.sql.session.timeZone": "UTC",
}


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalPool]:
    with LocalPool(workers=2) as pool:
        yield pool
        # pytest shows this output if the test fails.
        print(pool.log())


@pytest.fixture(
    scope="session", params=[(EXTENSION, _COMET), (_COMET, EXTENSION)], ids=["updraft_first", "comet_first"]
)
def spark(request: pytest.FixtureRequest, pool: LocalPool) -> Iterator[SparkSession]:
    jar = Path(os.environ["UPDRAFT_COMET_JAR"]).resolve(strict=True)
    confs = {
        **_CONFS,
        # Comet's classes have to be those of Spark's own class loader.
        "spark.driver.extraClassPath": f"{connector_jar()}:{jar}",
        "spark.sql.extensions": ",".join(request.param),
        ENDPOINT: pool.loopback_endpoint,
    }
    session = local_spark("updraft-comet", connector=False, conf=confs)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of a Parquet table with a column of each type, with and without nulls."""
    path = str(tmp_path_factory.mktemp("comet") / "rows")
    columns = {
        "tiny": "CAST(id % 100 AS tinyint)",
        "small": "CAST(id % 1000 AS smallint)",
        "int": "CAST(id AS int)",
        "long": "id",
        "float": "CAST(id AS float) / 4",
        "double": "id * 0.5D",
        "flag": "id % 3 = 0",
        "price": "CAST(id AS decimal(9, 2))",
        "amount": "CAST(id AS decimal(18, 2))",
        "sum": "CAST(id AS decimal(30, 2))",
        "text": "concat('text ', id % 1000)",
        "unique": "concat(repeat('x', CAST(id % 50 AS int)), id)",
        "bytes": "CAST(concat('bytes ', id % 10) AS binary)",
        "day": "date_add(DATE '2020-01-01', CAST(id % 1000 AS int))",
        "time": "timestamp_seconds(id)",
        "list": "array(id, -id)",
        "record": "struct(id AS a, CAST(id AS string) AS b)",
    }
    with_nulls = {f"{name}_or_null": f"IF(id % 7 = 0, NULL, {value})" for name, value in columns.items()}
    chosen = [f"{value} AS `{name}`" for name, value in (columns | with_nulls).items()]
    spark.range(0, 20_000, 1, 2).selectExpr("id", *chosen).write.mode("overwrite").parquet(path)
    return path
