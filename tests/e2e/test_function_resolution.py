# SPDX-License-Identifier: Apache-2.0
"""Which function a name means: after USE, on Spark's path, in views, and beside temporary functions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.e2e.named import naming_session, values
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT


@pytest.fixture
def session(spark: SparkSession, deployed: LocalPool) -> Iterator[SparkSession]:
    with naming_session(spark, deployed) as naming:
        yield naming


def test_a_view_calls_the_pool_of_the_session_that_reads_it(session: SparkSession) -> None:
    session.sql("CREATE VIEW spark_catalog.default.priced AS SELECT updraft.default.rebate(100, 20) AS price")
    try:
        assert values(session, "SELECT price FROM spark_catalog.default.priced") == [80.0]
        session.conf.unset(ENDPOINT)
        with pytest.raises(PySparkException, match="no pool is named default"):
            session.sql("SELECT price FROM spark_catalog.default.priced")
    finally:
        session.sql("DROP VIEW spark_catalog.default.priced")
