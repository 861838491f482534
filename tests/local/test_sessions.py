# SPDX-License-Identifier: Apache-2.0
"""Spark session with a local pool and a local writer, classic and Spark Connect, as a notebook makes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_NOTEBOOK = """
import sys
import updraft.spark
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf, udf

pool = updraft.spark.local_pool(workers=2)
log = str(pool.log_file)
writer = updraft.spark.local_writer(sys.argv[2])
builder = SparkSession.builder.config(map=pool.spark_conf() | writer.spark_conf())
builder = builder.config("spark.ui.enabled", "false").config("spark.api.mode", sys.argv[1])
spark = builder.master("local[2]").getOrCreate()
fahrenheit = pandas_udf(lambda celsius: celsius * 1.8 + 32, "double")
frame = spark.range(100).select(fahrenheit("id").alias("f"))
frame.explain()
frame.write.format("updraft-parquet").save(sys.argv[2] + "/degrees")

def seen(value):
    import helper

    try:
        readable = bool(open(log))
    except PermissionError:
        readable = False
    return f"{helper.NAME} {readable}"

print(spark.range(1).select(udf(seen)("id")).first()[0])
print("sum", spark.read.parquet(sys.argv[2] + "/degrees").agg({"f": "sum"}).first()[0])
spark.stop()
"""


@pytest.mark.parametrize("mode", ["classic", "connect"])
def test_the_udf_runs_on_the_pool_and_the_file_goes_through_the_writer(
    carried: Path, tmp_path: Path, mode: str
) -> None:
    program = [sys.executable, "-c", _NOTEBOOK, mode, str(tmp_path / "tables")]
    (tmp_path / "tables").mkdir()
    (tmp_path / "helper.py").write_text("NAME = 'of the current directory'\n")
    ran = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert ran.returncode == 0, ran.stderr
    assert "FlightEvalPython" in ran.stdout
    # As on stock PySpark. Functions cannot read the pool's log.
    assert "of the current directory False" in ran.stdout
    assert f"sum {sum(range(100)) * 1.8 + 32 * 100}" in ran.stdout


_STARTED_BEFORE = """
import updraft.spark
from pyspark.sql import SparkSession

with updraft.spark.local_pool(workers=1) as pool:
    pool.spark_conf()
    spark = SparkSession.builder.config("spark.ui.enabled", "false").master("local[1]").getOrCreate()
    spark.stop()
    pool.spark_conf()
"""


def test_a_spark_that_was_started_before_is_refused(carried: Path, tmp_path: Path) -> None:
    """Its JVM outlives the session, and has no connector: UDFs would silently run on stock."""
    program = [sys.executable, "-c", _STARTED_BEFORE]
    ran = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 1
    assert "RuntimeError: this process has started a Spark without Updraft" in ran.stderr
    assert "restart the kernel" in ran.stderr


_INTERRUPTED = """
import os, signal, threading, time
import updraft.spark
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from py4j.protocol import Py4JError

pool = updraft.spark.local_pool(workers=1)
builder = SparkSession.builder.config(map=pool.spark_conf()).config("spark.ui.enabled", "false")
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
print("then", spark.range(1).select(udf(lambda x: "free")("id").alias("f")).first()[0])
"""


def test_ctrl_c_in_a_program_frees_its_workers(carried: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-c", _INTERRUPTED]
    ran = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert "interrupted" in ran.stdout, ran.stderr
    assert "then free" in ran.stdout
