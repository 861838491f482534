# SPDX-License-Identifier: Apache-2.0
"""Executors in processes of their own that reach a writer over a Unix socket, without an extension in the session."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.support.spark import SHORT_LIVED_JVM, local_spark, wait_for_listeners

CONFS = {
    "spark.master": "local-cluster[1,1,1024]",
    "spark.sql.extensions": "",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
    "spark.updraft.write.connectTimeout": "5s",
}
NOT_THERE = "grpc+unix:///no/such/writer.sock"


def overwrite(spark: SparkSession, endpoint: str, path: Path, count: int) -> None:
    spark.conf.set("spark.updraft.write.endpoint", endpoint)
    spark.range(count).write.format("updraft-parquet").mode("overwrite").save(str(path))


def differences(spark: SparkSession, endpoint: str, path: Path) -> dict[str, str]:
    found = {}
    overwrite(spark, endpoint, path, 10)
    if (rows := spark.read.parquet(str(path)).count()) != 10:
        found["a healthy overwrite"] = f"{rows} rows"
    wait_for_listeners(spark)
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    if not any("WriterCheck" in jobs.apply(index).name() for index in range(jobs.size())):
        found["the ask"] = "no executor asked the writer"
    try:
        overwrite(spark, NOT_THERE, path, 20)
        found["no writer"] = "the overwrite succeeded"
    except Py4JJavaError as error:
        if f"cannot overwrite file:{path}" not in str(error):
            found["no writer"] = str(error)
    if (rows := spark.read.parquet(str(path)).count()) != 10:
        found["what was there"] = f"{rows} rows"
    return found


def main() -> None:
    endpoint, place = sys.argv[1:]
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = local_spark("overwrites", connector=True, conf=CONFS)
    try:
        found = differences(spark, endpoint, Path(place) / "data")
    finally:
        spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
