# SPDX-License-Identifier: Apache-2.0
"""Fresh pool for each test, because each test breaks its own; one Spark for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support.pool import NOTES, LocalPool
from tests.support.spark import local_spark, use_short_lived_jvms

WORKERS = 2


def pytest_configure() -> None:
    use_short_lived_jvms()


@pytest.fixture
def pool() -> Iterator[LocalPool]:
    # Every worker that a test may kill is working, because there are no spares.
    with LocalPool(workers=WORKERS, notes=NOTES, arguments=["--fresh-workers", "0"]) as pool:
        yield pool
        # pytest shows it if the test failed.
        print(pool.log())


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Four attempts per task: Spark retries what a pool cannot replay, as on a cluster.
    session = local_spark("updraft-faults", connector=True, conf={"spark.master": "local[2,4]"})
    session.sparkContext.setLogLevel("FATAL")
    yield session
    session.stop()
