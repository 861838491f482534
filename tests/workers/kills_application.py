# SPDX-License-Identifier: Apache-2.0
"""Application with a separate executor process, which reads the names of jobs and runs each job.

For each job, the application prints a line with the answer, or with a description of the error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.paths import PYTHON
from tests.support.spark import ENDPOINT, SHORT_LIVED_JVM, local_spark
from tests.workers.failures import failure
from tests.workers.kills_jobs import KINDS
from tests.workers.kills_stop import Stop
from tests.workers.scenario import outcome_of
from tests.workers.sides import CONFS, LAUNCHER, PLUGIN

_ON_EXECUTORS = {
    "spark.master": "local-cluster[1,2,1024]",
    "spark.executor.memory": "1g",
    "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
    # A barrier stage has to wait while Spark replaces a killed executor.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "60",
}


def outcome(spark: SparkSession, kind: str, stop: Stop) -> dict[str, Any]:
    """Run a job and return its answer or its error."""
    try:
        return {"answer": outcome_of(KINDS[kind].run(spark, stop.passing()))}
    except (PySparkException, Py4JJavaError) as error:
        raised = error

    def raises() -> None:
        raise raised

    return {"error": failure(raises)}


def main(endpoint: str) -> None:
    """Serve until the input ends: on the pool at `endpoint`; without an endpoint, on stock."""
    confs = {**CONFS, **_ON_EXECUTORS}
    if endpoint:
        confs |= {"spark.plugins": PLUGIN, ENDPOINT: endpoint}
    else:
        # This daemon imports the workers' modules before it forks workers. Without it, each killed worker costs
        # seconds.
        confs |= {"spark.python.daemon.module": "tests.e2e.warm_daemon"}
    spark = local_spark("kills", connector=bool(endpoint), conf=confs, python=LAUNCHER if endpoint else PYTHON)
    for line in sys.stdin:
        request = json.loads(line)
        stop = Stop(request["place"], request["step"], Path(request["directory"]), request["is_deadly"])
        print(json.dumps(outcome(spark, request["kind"], stop)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
