# SPDX-License-Identifier: Apache-2.0
"""Fresh pool for each test, because each test damages its pool; all tests share one Spark session."""

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
    # Without spares, every worker that a test may kill is one that runs exchanges.
    with LocalPool(workers=WORKERS, notes=NOTES, arguments=["--fresh-workers", "0"]) as pool:
        yield pool
        # If a test fails, pytest shows this output.
        print(pool.log())


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Give each task four attempts, as on a cluster: Spark retries what a pool cannot replay.
    session = local_spark("updraft-faults", connector=True, conf={"spark.master": "local[2,4]"})
    session.sparkContext.setLogLevel("FATAL")
    yield session
    session.stop()
