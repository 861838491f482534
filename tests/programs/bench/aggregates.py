# SPDX-License-Identifier: Apache-2.0
"""`make bench-aggregates`: the mean of each group, by an aggregate registered with a pool and by stock's pandas_udf.

Both aggregates read the same rows in one Spark session and take turns. The registered aggregate is `mean` of
docs/examples/functions/shop.py, called by name from SQL; it shuffles the states of groups. The pandas_udf is a grouped
aggregate, which shuffles all rows; the program checks in the plan that stock runs it. Bytes are the shuffle bytes that
Spark reports. build/bench/aggregates.json contains every run. The exit status is 1 if a promise is missed: at most a
tenth of stock's bytes, and at least three times stock's speed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.programs.bench.record import Record
from tests.programs.bench.spark_process import POOL_WORKERS
from tests.support.cpu import cpu_seconds
from tests.support.paths import BUILD, EXAMPLES, connector_jar
from tests.support.plan_metrics import metrics_of
from tests.support.pool import LocalPool
from tests.support.spark import executed_plan, flight_operators, local_spark, stock_confs, stock_operators

_MOST_BYTES = 0.1
"""Largest share of stock's shuffle bytes that our aggregate may write."""
_LEAST_SPEED = 3.0
_PARTITIONS = 4
_STOCK, _OURS = "stock", "updraft"
_CATALOG = "spark.sql.catalog.updraft"


@dataclass
class Aggregated(Record):
    """Runs of one aggregate, with the shuffle bytes of each run."""

    shuffle_bytes: list[int] = field(default_factory=list)

    @property
    def median_shuffle_bytes(self) -> float:
        """Median shuffle bytes of the counted runs."""
        return statistics.median(self.shuffle_bytes)


def main() -> int:
    """Measure, write build/bench/aggregates.json, print the results; return 1 if a promise is missed."""
    options, load = _options(), os.getloadavg()[0]
    connector_jar()
    print(f"{options.rows:,} rows in {options.groups} groups, {options.pairs} pairs of runs")
    print(f"{os.cpu_count()} cores, load average {load:.1f} at the start", flush=True)
    stock, ours = measure(options)
    (BUILD / "bench").mkdir(parents=True, exist_ok=True)
    (BUILD / "bench/aggregates.json").write_text(json.dumps([asdict(stock), asdict(ours)], indent=1) + "\n")
    print("\n".join(lines(stock, ours)))
    found = missed(stock, ours)
    for promise in found:
        print(f"MISSED: {promise}")
    return 1 if found else 0


def lines(stock: Aggregated, ours: Aggregated) -> Sequence[str]:
    """Return the results as lines of text."""
    of_sides = (
        f"{side.variant:8}{side.median_wall_s:9.2f} s{side.median_cpu_s:9.2f} CPU s"
        f"{side.median_shuffle_bytes:15,.0f} bytes through the shuffle"
        for side in (stock, ours)
    )
    speeds = _speeds(stock, ours)
    return [
        *of_sides,
        f"{statistics.median(speeds):.2f} times as fast (median of pairs; {min(speeds):.2f} to {max(speeds):.2f})",
        f"{share_of_bytes(stock, ours):.4f} of the bytes",
    ]


def missed(stock: Aggregated, ours: Aggregated) -> Sequence[str]:
    """Return the promises that were missed."""
    found = []
    if (share := share_of_bytes(stock, ours)) > _MOST_BYTES:
        found.append(f"{share:.3f} of the bytes of stock, promised at most {_MOST_BYTES:g}")
    if (times := speed(stock, ours)) < _LEAST_SPEED:
        found.append(f"{times:.2f} times as fast as stock, promised at least {_LEAST_SPEED:g}")
    return found


def speed(stock: Aggregated, ours: Aggregated) -> float:
    """Return our speed as a multiple of stock's: the median ratio of the pairs."""
    return statistics.median(_speeds(stock, ours))


def share_of_bytes(stock: Aggregated, ours: Aggregated) -> float:
    """Return our shuffle bytes as a share of stock's."""
    return ours.median_shuffle_bytes / stock.median_shuffle_bytes


def _speeds(stock: Aggregated, ours: Aggregated) -> Sequence[float]:
    """Return the ratio of speeds of each pair."""
    return [theirs / own for theirs, own in zip(stock.wall_s, ours.wall_s, strict=True)]


def measure(options: argparse.Namespace) -> tuple[Aggregated, Aggregated]:
    """Measure stock and ours in pairs whose order alternates."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH")]))
    sides = [Aggregated("mean", name, options.rows) for name in (_STOCK, _OURS)]
    with LocalPool(workers=POOL_WORKERS, session_functions="off", arguments=["--functions", "shop"]) as pool:
        # Without an endpoint, session functions run on stock.
        confs = {
            _CATALOG: "io.updraft.spark.FunctionCatalog",
            f"{_CATALOG}.pool.bench": pool.tcp_endpoint,
            "spark.driver.memory": "4g",
            "spark.log.level": "FATAL",
            **stock_confs(),
        }
        spark = local_spark("bench-aggregates", connector=True, conf=confs)
        try:
            for number in range(options.warm_up + options.pairs):
                for side in sides if number % 2 else reversed(sides):
                    _run(spark, side, pool.pid, options, counts=number >= options.warm_up)
        finally:
            spark.stop()
    return sides[0], sides[1]


def _run(spark: SparkSession, side: Aggregated, pool_pid: int, options: argparse.Namespace, *, counts: bool) -> None:
    frame = _means(spark, side.variant, options)
    plan, is_ours = executed_plan(frame), side.variant == _OURS
    if (bool(flight_operators(plan)), bool(stock_operators(plan))) != (is_ours, not is_ours):
        raise SystemExit(f"the plan is not that of {side.variant}:\n{plan}")
    roots = [os.getpid(), pool_pid]
    before, started = cpu_seconds(roots), time.perf_counter()
    means = {row.k: row.mean for row in frame.collect()}
    wall_s, cpu_s = time.perf_counter() - started, cpu_seconds(roots) - before
    _check(means, options)
    # Collect garbage now, so that the next run does not have to.
    spark._jvm.System.gc()
    if not counts:
        side.warm_up_wall_s.append(wall_s)
        return
    side.wall_s.append(wall_s)
    side.cpu_s.append(cpu_s)
    side.shuffle_bytes.append(metrics_of(frame, "Exchange")["shuffleBytesWritten"])


def _means(spark: SparkSession, variant: str, options: argparse.Namespace) -> DataFrame:
    rows = spark.range(0, options.rows, 1, _PARTITIONS).selectExpr(
        f"id % {options.groups} AS k", "CAST(id AS DOUBLE) AS v"
    )
    if variant == _OURS:
        return rows.groupBy("k").agg(F.call_function("updraft.bench.mean", "v").alias("mean"))

    @F.pandas_udf("double")
    def mean(values: pd.Series) -> float:
        return float(values.mean())

    return rows.groupBy("k").agg(mean("v").alias("mean"))


def _check(means: dict[int, float], options: argparse.Namespace) -> None:
    """Raise SystemExit if a mean is wrong."""
    for key in range(min(options.groups, options.rows)):
        count = -(-(options.rows - key) // options.groups)
        expected = key + options.groups * (count - 1) / 2
        if not math.isclose(means[key], expected, rel_tol=1e-9):
            raise SystemExit(f"the mean of group {key} is {means[key]}, not {expected}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-aggregates", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows (10000000)")
    parser.add_argument("--groups", type=int, default=100, help="groups (100)")
    parser.add_argument("--pairs", type=int, default=7, help="counted runs of each side (7)")
    parser.add_argument("--warm-up", type=int, default=2, help="runs of each side before those (2)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
