# SPDX-License-Identifier: Apache-2.0
"""Pool, and one Spark session with Delta, Iceberg, Hive's metastore and Derby as a database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.commands import register_functions
from tests.support.paths import connector_jar
from tests.support.pool import LocalPool
from tests.support.spark import EXTENSION, local_spark, use_short_lived_jvms
from tests.support.writer import LocalWriter

_EXTENSIONS = (
    EXTENSION,
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


def _jars() -> list[Path]:
    return sorted(Path(os.environ["UPDRAFT_TABLE_JARS"]).resolve(strict=True).glob("*.jar"))


def has_iceberg() -> bool:
    """Return whether Iceberg supports this Spark, because Delta supports new versions first (`-k "not iceberg"`)."""
    return any(jar.name.startswith("iceberg") for jar in _jars())


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalPool]:
    with LocalPool(workers=2) as pool:
        yield pool
        # If the test fails, pytest shows this output.
        print(pool.log())


@pytest.fixture(scope="session")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWriter]:
    """Run a writer that may write every file of these tests."""
    with LocalWriter(tmp_path_factory.getbasetemp()) as writer:
        yield writer
        # If the test fails, pytest shows this output.
        print(writer.log())


@pytest.fixture(scope="session")
def spark(pool: LocalPool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    use_short_lived_jvms()
    directory = tmp_path_factory.mktemp("tables")
    jars = _jars()
    confs = {
        "spark.driver.extraClassPath": ":".join(map(str, [connector_jar(), *jars])),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={directory / 'derby'}",
        "spark.sql.extensions": ",".join(_EXTENSIONS if has_iceberg() else _EXTENSIONS[:-1]),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
        "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.iceberg": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.iceberg.type": "hadoop",
        "spark.sql.catalog.iceberg.warehouse": str(directory / "iceberg"),
        "spark.sql.catalog.database": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.database.type": "jdbc",
        "spark.sql.catalog.database.uri": "jdbc:h2:mem:iceberg;DB_CLOSE_DELAY=-1",
        "spark.sql.catalog.database.warehouse": str(directory / "iceberg" / "database"),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
        # The tests' tables are small, so send small writes to the writer too.
        "spark.updraft.write.smallWriteBytes": "0",
    }
    session = local_spark("updraft-tables", connector=False, conf=confs)
    session.sparkContext.setLogLevel("FATAL")
    register_functions(session)
    yield session
    session.stop()
