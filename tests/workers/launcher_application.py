# SPDX-License-Identifier: Apache-2.0
"""Application whose only executor is the driver's JVM. It reports starts of the launcher, and memory after jobs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.support.paths import PYTHON
from tests.support.spark import ENDPOINT, local_spark
from tests.workers.counted_launcher import CountedLauncher
from tests.workers.jvm_memory import memory_mib
from tests.workers.sides import PLUGIN

_JOBS = 3
_ROWS = 200_000
_LARGE_ROW_BYTES = 1 << 20


def run_jobs(spark: SparkSession) -> None:
    """Run jobs with many small rows and jobs with few large rows, in two workers at once."""
    context = spark.sparkContext
    for _ in range(_JOBS):
        assert context.range(_ROWS, numSlices=2).map(lambda number: number + 1).count() == _ROWS
        large = context.parallelize([bytes(_LARGE_ROW_BYTES)] * 8, 2).map(lambda row: row + b"x")
        assert large.map(len).sum() == 8 * (_LARGE_ROW_BYTES + 1)


def main(endpoint: str, directory: Path) -> dict[str, Any]:
    """Return the number of daemons of each JVM, and the memory in MiB after the jobs; without an endpoint, on stock."""
    launcher = CountedLauncher(directory)
    confs = {ENDPOINT: endpoint, "spark.plugins": PLUGIN} if endpoint else {}
    python = launcher.path if endpoint else PYTHON
    spark = local_spark("launcher", connector=bool(endpoint), conf=confs, python=python)
    run_jobs(spark)
    found = {"daemons": launcher.daemons(), "mib": memory_mib(spark)}
    spark.stop()
    return found


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
