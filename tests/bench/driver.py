# SPDX-License-Identifier: Apache-2.0
"""One Spark that runs cases as it is told: a line of JSON in, a line of JSON out. Started by `udf.py`."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.bench.cases import CASES, with_udf, without_udf
from tests.bench.variants import VARIANTS
from tests.support.spark import ENDPOINT, executed_plan, flight_operators, local_spark, stock_operators


def main() -> None:
    """Arguments: variant, endpoint (may be empty), directory of the data."""
    name, endpoint, directory = sys.argv[1:]
    warnings.filterwarnings("ignore", module="pyspark")
    variant = next(variant for variant in VARIANTS if variant.name == name)
    confs = {"spark.log.level": "FATAL", **variant.confs, **({ENDPOINT: endpoint} if endpoint else {})}
    spark = local_spark(f"bench-{name}", connector=variant.connector, conf=confs)
    use = with_udf if variant.runs_udf else without_udf
    cases = {case.name: case for case in CASES}
    _answer({"ready": spark.version})
    for line in sys.stdin:
        order = json.loads(line)
        frame = cases[order["case"]].build(spark, Path(directory), order["rows"], use)
        _check_plan(frame, connector=variant.connector, runs_udf=variant.runs_udf)
        try:
            _answer({"wall_s": _seconds(frame)})
        except (PySparkException, Py4JJavaError) as error:
            _answer({"failed": str(error).strip().splitlines()[-1]})
        # What this query left behind is not the next one's to clean.
        _collect_garbage(spark)
    spark.stop()


def _seconds(frame: DataFrame) -> float:
    started = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def _check_plan(frame: DataFrame, *, connector: bool, runs_udf: bool) -> None:
    """A variant that does not run what it says would be a lie in the chart."""
    plan = executed_plan(frame)
    if bool(flight_operators(plan)) != connector or bool(stock_operators(plan)) != (runs_udf and not connector):
        raise SystemExit(f"the plan is not that of this variant:\n{plan}")


def _collect_garbage(spark: SparkSession) -> None:
    spark._jvm.System.gc()


def _answer(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
