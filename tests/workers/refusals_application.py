# SPDX-License-Identifier: Apache-2.0
"""Application that runs a job of one task for each line of its input; the line contains the differences of this job.

For each job, the application prints a line when the task runs, and then a line with the outcome.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.support.spark import local_spark, wait_for_listeners
from tests.workers.confs import application_confs
from tests.workers.sides import LAUNCHER, PLUGIN

_PAUSE_SECONDS = 0.05


def _ends_its_worker(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def outcome(spark: SparkSession, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the job and return its `value`, or its `error` and the number of failed attempts at its task."""
    context = spark.sparkContext
    group = str(uuid.uuid4())
    with application_confs(spark, request["confs"]):
        context.setJobGroup(group, "a job of one task")
        context.environment.update(request["environment"])
        context.pythonVer = request["python_version"] or f"{sys.version_info[0]}.{sys.version_info[1]}"
        try:
            function = _ends_its_worker if request["is_deadly"] else abs
            return {"value": context.parallelize([-1], 1).map(function).collect()}
        except Exception as error:
            return {"error": str(error), "failures": failures(spark, group)}
        finally:
            for name in request["environment"]:
                context.environment.pop(name)


def failures(spark: SparkSession, group: str) -> int:
    """Return the number of failed attempts at tasks in the jobs of a group."""
    wait_for_listeners(spark)
    tracker = spark.sparkContext.statusTracker()
    jobs = [job for number in tracker.getJobIdsForGroup(group) if (job := tracker.getJobInfo(number)) is not None]
    stages = [tracker.getStageInfo(number) for job in jobs for number in job.stageIds]
    return sum(stage.numFailedTasks for stage in stages if stage is not None)


def is_running(context: SparkContext) -> bool:
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    return any(stage is not None and stage.numActiveTasks for stage in stages)


def tell(line: Any) -> None:
    print(json.dumps(line), flush=True)


def main() -> None:
    """Serve until the input ends."""
    # Give a failing task a second attempt.
    confs = {"spark.master": "local[1,2]", "spark.plugins": PLUGIN}
    spark = local_spark("refusals", connector=True, conf=confs, python=LAUNCHER)
    for line in sys.stdin:
        found: list[Any] = []

        def run(request: Any, found: list[Any] = found) -> None:
            found.append(outcome(spark, request))

        job = threading.Thread(target=run, args=(json.loads(line),))
        job.start()
        while job.is_alive() and not is_running(spark.sparkContext):
            # Poll, because Spark has no call that waits until a task runs.
            time.sleep(_PAUSE_SECONDS)
        tell("runs")
        job.join()
        tell(found[0])
    spark.stop()


if __name__ == "__main__":
    main()
