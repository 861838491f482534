# SPDX-License-Identifier: Apache-2.0
"""Application on an executor of its own, which runs the same job for each line of its input.

For each job it prints a line once tasks compute, and then another one with the outcome.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from pyspark import SparkContext

from tests.support.spark import ENDPOINT, local_spark
from tests.workers.sides import LAUNCHER, PLUGIN

ELEMENTS = 30
_PAUSE_SECONDS = 0.1


def slow(number: int) -> int:
    time.sleep(_PAUSE_SECONDS)
    return number


def computes(context: SparkContext) -> bool:
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    return any(stage is not None and stage.numActiveTasks == 2 for stage in stages)


def tell(line: Any) -> None:
    print(json.dumps(line), flush=True)


def main(endpoint: str) -> None:
    """Serve until the input ends."""
    confs = {"spark.master": "local-cluster[1,2,1024]", "spark.executor.memory": "1g", "spark.plugins": PLUGIN}
    spark = local_spark("kills", connector=True, conf=confs | {ENDPOINT: endpoint}, python=LAUNCHER)
    context = spark.sparkContext
    for _ in sys.stdin:
        outcome: list[Any] = []

        def run(outcome: list[Any] = outcome) -> None:
            try:
                outcome.append(context.parallelize(range(ELEMENTS), 2).map(slow).sum())
            except Exception as error:
                outcome.append(str(error))

        job = threading.Thread(target=run)
        job.start()
        while job.is_alive() and not computes(context):
            time.sleep(_PAUSE_SECONDS)
        # By then, the tasks have started their workers. Spark does not report that.
        time.sleep(5 * _PAUSE_SECONDS)
        tell("computes")
        job.join()
        tell(outcome[0])
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
