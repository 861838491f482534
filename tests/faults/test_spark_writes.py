# SPDX-License-Identifier: Apache-2.0
"""Tasks and whole applications that die while they write: no wrong, partial or extra file, no leaked reservation."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.paths import REPOSITORY
from tests.support.spark import runtime_confs
from tests.support.waiting import until
from tests.support.writer import LocalWriter

_ENDPOINT = "spark.updraft.write.endpoint"
_DELIVERY = "spark.updraft.write.delivery"
# Number of kills for each delivery.
_KILLS = 50
_PARTITIONS = 12
_KEYS = 3
_ROWS = 1_200_000
_APPLICATION = """
import sys
from pyspark.sql import functions as F
from tests.support.spark import local_spark

endpoint, path = sys.argv[1:]
spark = local_spark("to be killed", connector=True, conf={"spark.updraft.write.endpoint": endpoint})
spark.range(0, 1 << 40, 1, 2).select(F.sha1(F.col("id").cast("string"))).write.format("updraft-parquet").save(path)
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LocalWriter]:
    with LocalWriter(tmp_path, arguments=["--quota-bytes", str(64 << 20)]) as writer:
        yield writer
        print(writer.log())


class TaskKiller:
    """Thread that kills running tasks at random moments until it has killed enough; Spark restarts each task."""

    def __init__(self, spark: SparkSession, kills: int, seed: int) -> None:
        self._spark = spark
        self._kills = kills
        self._chance = random.Random(seed)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.killed: set[int] = set()

    def _run(self) -> None:
        while len(self.killed) < self._kills and not self._done.wait(self._chance.uniform(0.02, 0.2)):
            running = self._running()
            if running:
                task = self._chance.choice(running)
                with contextlib.suppress(Py4JError):
                    if self._spark.sparkContext._jsc.sc().killTaskAttempt(task, True, "a test"):
                        self.killed.add(task)

    def _running(self) -> list[int]:
        context = self._spark.sparkContext
        store = context._jsc.sc().statusStore()
        lists = [store.taskList(stage, 0, 1000) for stage in context.statusTracker().getActiveStageIds()]
        tasks = [tasks.apply(index) for tasks in lists for index in range(tasks.size())]
        return [task.taskId() for task in tasks if task.status() == "RUNNING" and task.taskId() not in self.killed]

    def __enter__(self) -> TaskKiller:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._done.set()
        self._thread.join()


@pytest.mark.parametrize("delivery", ["direct", "return"])
def test_tasks_killed_at_random_leave_every_row_once_and_nothing_else(
    spark: SparkSession, writer: LocalWriter, tmp_path: Path, delivery: str
) -> None:
    path = tmp_path / "data"
    frame = spark.range(0, _ROWS, 1, _PARTITIONS).select(
        "id", (F.col("id") % _KEYS).alias("k"), F.sha2(F.col("id").cast("string"), 512).alias("text")
    )
    confs = {_ENDPOINT: writer.tcp_endpoint, _DELIVERY: delivery, "spark.updraft.write.batchBytes": "256k"}
    with runtime_confs(spark, confs), TaskKiller(spark, _KILLS, seed=len(delivery)) as killer:
        while len(killer.killed) < _KILLS:
            frame.write.format("updraft-parquet").partitionBy("k").mode("overwrite").save(str(path))
            _has_every_row_once_and_nothing_else(spark, path)
    writer.becomes_empty()


def _has_every_row_once_and_nothing_else(spark: SparkSession, path: Path) -> None:
    files = [file for file in path.rglob("*") if file.is_file() and file.suffix != ".crc"]
    assert len(files) == _PARTITIONS * _KEYS + 1, "a file beside those of the tasks and _SUCCESS"
    assert all(file.name == "_SUCCESS" or file.name.startswith("part-") for file in files)
    read = spark.read.parquet(str(path))
    assert read.agg(F.count("*"), F.countDistinct("id"), F.sum("id")).first() == (
        _ROWS,
        _ROWS,
        _ROWS * (_ROWS - 1) // 2,
    )
    assert read.where("text != sha2(cast(id as string), 512) or k != id % 3").isEmpty()


def test_a_killed_application_leaves_no_file_and_no_reservation(writer: LocalWriter, tmp_path: Path) -> None:
    path = tmp_path / "data"
    command = [sys.executable, "-c", _APPLICATION, writer.tcp_endpoint, str(path)]
    application = subprocess.Popen(command, cwd=REPOSITORY, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        until("the application writes", lambda: writer.status()["held_bytes"], timeout_seconds=180)
    finally:
        os.killpg(application.pid, signal.SIGKILL)
        application.wait()
    writer.becomes_empty()
    assert not list(path.rglob("*.parquet*")), "also under Spark's temporary directory"
