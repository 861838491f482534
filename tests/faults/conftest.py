# SPDX-License-Identifier: Apache-2.0
"""A fresh pool for each test, because each breaks its own; one Spark for all of them."""

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
    # Whichever worker a test kills is one that works: none stands by.
    with LocalPool(workers=WORKERS, notes=NOTES, arguments=["--fresh-workers", "0"]) as pool:
        yield pool
        # pytest shows it when the test failed.
        print(pool.log())


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Four tries for a task: what a pool cannot replay is Spark's to retry, as on a cluster.
    session = local_spark("updraft-faults", connector=True, conf={"spark.master": "local[2,4]"})
    session.sparkContext.setLogLevel("FATAL")
    yield session
    session.stop()
