# SPDX-License-Identifier: Apache-2.0
"""Application with a separate executor process. It tests files, starts of the launcher, and a cancelled job."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkContext, SparkFiles, TaskContext
from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

from tests.support.spark import ENDPOINT, local_spark
from tests.workers.counted_launcher import CountedLauncher
from tests.workers.sides import PLUGIN

_SLEEP_SECONDS = 120


def listed(_numbers: Iterable[int]) -> Iterator[list[str]]:
    yield sorted(path.name for path in Path(SparkFiles.getRootDirectory()).iterdir())


def processors(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the number of processors of the task for each row."""
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"processors": pa.array([context.cpus()] * batch.num_rows, pa.int32())})


def asleep(row: bytes) -> bytes:
    time.sleep(_SLEEP_SECONDS)
    return row


def starts_python(context: SparkContext) -> bool:
    """Return whether the driver's JVM can start a Python. The executor runs in the same mount namespace."""
    try:
        runtime = context._jvm.java.lang.Runtime.getRuntime()
        return bool(runtime.exec("python3 -V").waitFor() == 0)
    except Exception:
        return False


def main(endpoint: str, directory: Path) -> dict[str, Any]:
    """Return the outcomes of all jobs, by name."""
    confs = {"spark.master": "local-cluster[1,2,1024]", "spark.executor.memory": "1g", "spark.plugins": PLUGIN}
    launcher = CountedLauncher(directory)
    spark = local_spark("executor", connector=True, conf=confs | {ENDPOINT: endpoint}, python=launcher.path)
    context = spark.sparkContext
    value = context.broadcast("value")
    # One worker runs both jobs. The worker keeps the value, although Spark deletes the value's file between the jobs.
    one = context.parallelize(range(2), 1).map(lambda _: value.value)
    found: dict[str, Any] = {"python": starts_python(context), "broadcast": one.collect()}
    value.unpersist(blocking=True)
    found["unpersisted"] = one.collect()
    (directory / "named.txt").write_text("named")
    context.addFile(str(directory / "named.txt"))
    numbers = context.parallelize(range(4), 2)
    found["files"] = numbers.mapPartitions(listed).collect()

    def count() -> None:
        try:
            # Send more input than the pool reads ahead, so that the executor has to wait for room.
            context.parallelize([bytes(1000)] * 50_000, 2).map(asleep).count()
        except Exception as error:
            found["cancelled"] = "cancelled" in str(error)

    job = threading.Thread(target=count)
    job.start()
    while not context.statusTracker().getActiveJobsIds():
        time.sleep(0.1)
    # By now, the pool has read as much input ahead of the function as it ever reads.
    time.sleep(3)
    context.cancelAllJobs()
    job.join(_SLEEP_SECONDS / 2)
    # The pool has two workers, so this job waits until the workers of the cancelled tasks are free.
    began = time.monotonic()
    found["sum"] = numbers.map(lambda number: number + 1).sum()
    found["workers are free"] = time.monotonic() - began < _SLEEP_SECONDS / 2
    found["daemons"] = launcher.daemons()
    profile = ResourceProfileBuilder().require(TaskResourceRequests().cpus(2)).build
    frame = spark.range(0, 4, 1, 2).mapInArrow(processors, "processors int", profile=profile)
    found["resource profile"] = [row.processors for row in frame.collect()]
    spark.stop()
    return found


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
