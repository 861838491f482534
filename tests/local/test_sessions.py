# SPDX-License-Identifier: Apache-2.0
"""Spark session with a local pool and a local writer, as a program makes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_STARTED_BEFORE = """
import updraft.spark
from pyspark import SparkContext

with updraft.spark.local_pool(workers=1) as pool:
    pool.spark_conf()
    # A session starts this JVM first, and leaves it behind when it ends.
    SparkContext._ensure_initialized()
    pool.spark_conf()
"""


def test_a_spark_that_was_started_before_is_refused(carried: Path, tmp_path: Path) -> None:
    """Its JVM outlives the session, and has no connector: UDFs would silently run on stock."""
    program = [sys.executable, "-c", _STARTED_BEFORE]
    ran = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 1
    assert "RuntimeError: this process has started Spark without Updraft" in ran.stderr
    assert "restart the kernel" in ran.stderr


_INTERRUPTED = """
import os, signal, sys, threading, time
import updraft.spark
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from py4j.protocol import Py4JError

pool = updraft.spark.local_pool(workers=1)
writer = updraft.spark.local_writer(sys.argv[1])
builder = SparkSession.builder.config(map=pool.spark_conf() | writer.spark_conf()).config("spark.ui.enabled", "false")
spark = builder.master("local[1]").getOrCreate()

@udf("long")
def sleepy(x):
    print("asleep", flush=True)
    time.sleep(600)

def interrupt():
    while "asleep" not in pool.log():
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    spark.range(1).select(sleepy("id")).collect()
except (KeyboardInterrupt, Py4JError):
    # Stock PySpark may raise an error of its own while it handles the interrupt.
    print("interrupted")
frame = spark.range(1).select(udf(lambda x: "free")("id").alias("f"))
frame.write.format("updraft-parquet").save(sys.argv[1] + "/free")
print("then", spark.read.parquet(sys.argv[1] + "/free").first()[0])
spark.stop()
"""


def test_ctrl_c_in_a_program_frees_its_workers(carried: Path, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    program = [sys.executable, "-c", _INTERRUPTED, str(tmp_path / "tables")]
    ran = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert ran.returncode == 0, ran.stderr
    assert "interrupted" in ran.stdout, ran.stderr
    assert "then free" in ran.stdout
