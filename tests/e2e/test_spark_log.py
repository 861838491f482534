# SPDX-License-Identifier: Apache-2.0
"""Contents of Spark's own log, as a user's job writes it with Spark's defaults."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.support.paths import PYTHON, REPOSITORY, connector_jar
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, EXTENSION

_TIMEOUT_SECONDS = 280
_JOB = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
with_barrier = spark.range(4).mapInArrow(lambda batches: batches, "id bigint", barrier=True)
print("rows:", with_barrier.count())
spark.stop()
"""


@pytest.fixture
def arguments(pool: LocalPool | None) -> list[str]:
    if pool is None:
        pytest.skip("these tests are about Updraft alone")
    confs = {
        "spark.jars": str(connector_jar()),
        "spark.sql.extensions": EXTENSION,
        ENDPOINT: pool.tcp_endpoint,
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    return ["--master", "local[2]", *(part for key, value in confs.items() for part in ("--conf", f"{key}={value}"))]


def test_what_stays_on_stock_is_in_sparks_log_with_the_reason(arguments: list[str]) -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": str(PYTHON), "PYSPARK_DRIVER_PYTHON": str(PYTHON)}
    environment["PYSPARK_SUBMIT_ARGS"] = " ".join([*arguments, "pyspark-shell"])
    job = subprocess.run(
        [PYTHON, "-c", _JOB],
        capture_output=True,
        text=True,
        env=environment,
        cwd=REPOSITORY,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    assert "rows: 4" in job.stdout, job.stderr
    (line,) = (line for line in job.stderr.splitlines() if "stays in Spark's own Python workers" in line)
    # Spark 3.5 calls the operator PythonMapInArrow.
    assert re.search(r"WARN UpdraftStrategy: (Python)?MapInArrow", line)
    assert line.endswith("a barrier stage needs Spark's own BarrierTaskContext (barrier)")
