# SPDX-License-Identifier: Apache-2.0
"""A pool, and a Spark with both plug-ins for each order of their extensions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.paths import connector_jar
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, EXTENSION, local_spark

_RAPIDS = "com.nvidia.spark.rapids.SQLExecPlugin"
_CONFS = {
    # Not spark.jars, which would copy a gigabyte for each application.
    "spark.driver.memory": "2g",
    "spark.plugins": "com.nvidia.spark.SQLPlugin",
    # Plans for a GPU and reports what would run there; runs everything as if the plug-in were absent.
    "spark.rapids.sql.mode": "explainOnly",
    "spark.rapids.sql.explain": "NONE",
    "spark.sql.session.timeZone": "UTC",
}
# `make test-rapids-gpu`: part of the GPU's memory, because a test of its own may hold some of it.
_ON_GPU = {
    "spark.rapids.sql.mode": "executeOnGPU",
    "spark.rapids.memory.gpu.allocFraction": "0.35",
    "spark.rapids.memory.gpu.minAllocFraction": "0",
    "spark.rapids.memory.pinnedPool.size": "2g",
    "spark.rapids.sql.concurrentGpuTasks": "2",
    # The accelerator's own Python operators start their workers with the executor's confs.
    "spark.rapids.sql.python.gpu.enabled": "false",
}


@pytest.fixture(scope="session")
def rapids_jar() -> Path:
    return Path(os.environ["UPDRAFT_RAPIDS_JAR"]).resolve(strict=True)


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalPool]:
    with LocalPool(workers=2) as pool:
        yield pool
        # pytest shows this output if the test fails.
        print(pool.log())


@pytest.fixture(
    scope="session", params=[(EXTENSION, _RAPIDS), (_RAPIDS, EXTENSION)], ids=["updraft_first", "rapids_first"]
)
def spark(request: pytest.FixtureRequest, pool: LocalPool, rapids_jar: Path) -> Iterator[SparkSession]:
    confs = {
        **_CONFS,
        **(_ON_GPU if os.environ.get("UPDRAFT_RAPIDS_MODE") == "executeOnGPU" else {}),
        "spark.driver.extraClassPath": f"{connector_jar()}:{rapids_jar}",
        "spark.sql.extensions": ",".join(request.param),
        ENDPOINT: pool.tcp_endpoint,
    }
    session = local_spark("updraft-rapids", connector=False, conf=confs)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
