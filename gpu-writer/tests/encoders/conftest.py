# SPDX-License-Identifier: Apache-2.0
"""Spark session that reads the encoders' files, started once."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from spark_oracle import local_spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with local_spark() as spark:
        yield spark
