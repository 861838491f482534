# SPDX-License-Identifier: Apache-2.0
"""`make bench-far`: batches per second of a task whose pool is a few milliseconds away, and of a task with a near pool.

The function sleeps for each batch, so the pool takes the same time in both cases, however busy the machine is. Both
connections go through a proxy; for the far pool, the proxy delays every byte.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.far_network import FarNetwork
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, local_spark, runtime_confs

_ROW_BYTES = 8
_WARM_UP_RUNS = 2


def main() -> int:
    """Run each batch size in turn over both connections, and print the medians."""
    parser = argparse.ArgumentParser(prog="bench-far", description=__doc__)
    parser.add_argument("--milliseconds", type=float, default=5.0, help="round trip to the pool (5)")
    parser.add_argument("--work-milliseconds", type=float, default=1.0, help="work of the function on a batch (1)")
    parser.add_argument("--batch-kib", type=int, nargs="+", default=[64, 256], help="sizes of a batch (64 256)")
    parser.add_argument("--batches", type=int, default=600, help="batches of a run (600)")
    parser.add_argument("--runs", type=int, default=5, help="counted runs (5)")
    options = parser.parse_args()
    spark = local_spark("bench-far", connector=True, conf={"spark.log.level": "ERROR"})
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(LocalPool(workers=2))
        networks = [FarNetwork(pool.tcp_address, seconds) for seconds in (0.0, options.milliseconds / 1000)]
        endpoints = [f"grpc+tcp://{stack.enter_context(network).address}" for network in networks]
        for kib in options.batch_kib:
            rates: list[list[float]] = [[], []]
            for run in range(_WARM_UP_RUNS + options.runs):
                for endpoint, found in zip(endpoints, rates, strict=True):
                    rate = _rate(spark, endpoint, kib << 10, options.batches, options.work_milliseconds / 1000)
                    if run >= _WARM_UP_RUNS:
                        found.append(rate)
            near, far = (statistics.median(found) for found in rates)
            print(
                f"{kib} KiB: near {near:.0f} batches/s, {options.milliseconds:g} ms away {far:.0f} ({far / near:.2f})",
                flush=True,
            )
    spark.stop()
    return 0


def _rate(spark: SparkSession, endpoint: str, batch_bytes: int, batches: int, work_seconds: float) -> float:
    """Return the batches per second of a query with one task."""

    @F.pandas_udf("bigint")
    def wait(values: pd.Series) -> pd.Series:
        time.sleep(work_seconds)
        return values

    rows = batch_bytes // _ROW_BYTES
    confs = {
        ENDPOINT: endpoint,
        "spark.updraft.udf.batchBytes": str(batch_bytes),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows),
    }
    with runtime_confs(spark, confs):
        frame = spark.range(0, rows * batches, 1, 1).select(wait("id"))
        started = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return batches / (time.perf_counter() - started)


if __name__ == "__main__":
    sys.exit(main())
