# SPDX-License-Identifier: Apache-2.0
"""An application on two hosts, one of them slow: ENDPOINT DELIVERY PATH WORK_DIRECTORY.

Writes, and prints how many tasks were speculative. Spark copies no task to the host that it runs on, and takes two
addresses of this machine for two hosts.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.paths import connector_jar
from tests.support.spark import EXTENSION

PARTITIONS = 4
ROWS = 400
_HOSTS = ("127.0.0.1", "127.0.0.2")
_EXECUTOR_MIB = 512
_SLOW_MILLISECONDS = 500
_CONFS = {
    "spark.jars": str(connector_jar()),
    "spark.sql.extensions": EXTENSION,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": _HOSTS[0],
    "spark.driver.bindAddress": _HOSTS[0],
    "spark.driver.memory": "512m",
    "spark.executor.memory": f"{_EXECUTOR_MIB}m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.25",
    "spark.updraft.write.batchBytes": "1k",
}


def _start_cluster(directory: str) -> str:
    """A master and a worker for each host, in this process' own JVM; returns the master's address."""
    jvm: Any = SparkContext._jvm
    conf, nothing = jvm.org.apache.spark.SparkConf(), jvm.scala.Option.apply(None)
    master = jvm.org.apache.spark.deploy.master.Master.startRpcEnvAndEndpoint(_HOSTS[0], 0, 0, conf)
    address = str(master._1().address().toSparkURL())
    masters = SparkContext._gateway.new_array(jvm.java.lang.String, 1)
    masters[0] = address
    for number, host in enumerate(_HOSTS):
        start = jvm.org.apache.spark.deploy.worker.Worker.startRpcEnvAndEndpoint
        number_of = jvm.scala.Option.apply(number)
        start(host, 0, 0, 1, 2 * _EXECUTOR_MIB, masters, directory, number_of, conf, nothing)
    return address


def _speculative_tasks(spark: SparkSession) -> int:
    store = spark.sparkContext._jsc.sc().statusStore()
    no_quantiles = SparkContext._gateway.new_array(SparkContext._jvm.double, 0)
    stages = store.stageList(None, False, False, no_quantiles, None)
    lists = [store.taskList(stages.apply(index).stageId(), 0, 1000) for index in range(stages.size())]
    return sum(tasks.apply(index).speculative() for tasks in lists for index in range(tasks.size()))


def main(endpoint: str, delivery: str, path: str, directory: str) -> None:
    """Write through the writer; an executor's working directory ends with its number."""
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(_CONFS.items())))
    builder = SparkSession.builder.master(_start_cluster(directory)).config("spark.updraft.write.delivery", delivery)
    spark = builder.config("spark.updraft.write.endpoint", endpoint).getOrCreate()
    slow = F.expr("reflect('java.lang.System', 'getProperty', 'user.dir') like '%/0'")
    pause = F.expr(f"reflect('java.lang.Thread', 'sleep', {_SLOW_MILLISECONDS}L)")
    # Nothing else is different on the slow host.
    nothing = F.when(slow, F.length(F.concat_ws("", pause)) * 0).otherwise(0)
    spark.range(0, ROWS, 1, PARTITIONS).select((F.col("id") + nothing).alias("id")).write.format(
        "updraft-parquet"
    ).save(path)
    print(_speculative_tasks(spark), flush=True)
    # A master that lives in the driver cannot outlive its own application: the JVM ends with this process.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
