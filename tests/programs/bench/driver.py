# SPDX-License-Identifier: Apache-2.0
"""Spark process that runs cases on request: a line of JSON in, a line of JSON out. Started by `spark_process.py`."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.programs.bench.case import Scene, with_udf, without_udf
from tests.programs.bench.cases import CASES
from tests.programs.bench.variants import VARIANTS, Variant
from tests.support.spark import (
    ENDPOINT,
    executed_plan,
    flight_operators,
    local_spark,
    runtime_confs,
    stock_operators,
)


def main() -> None:
    """Serve requests. Arguments: variant, endpoint (may be empty), directory of the data."""
    name, endpoint, directory = sys.argv[1:]
    warnings.filterwarnings("ignore", module="pyspark")
    variant = next(variant for variant in VARIANTS if variant.name == name)
    confs = {"spark.log.level": "FATAL", **variant.confs, **({ENDPOINT: endpoint} if endpoint else {})}
    spark = local_spark(f"bench-{name}", connector=variant.connector, conf=confs)
    _answer({"ready": spark.version})
    collect_garbage = spark._jvm.System.gc
    for line in sys.stdin:
        order = json.loads(line)
        if "case" in order:
            _answer(_run(order, variant, spark, Path(directory)))
        else:
            collect_garbage()
            _answer({"clean": True})
    spark.stop()


def _run(order: dict[str, str], variant: Variant, spark: SparkSession, directory: Path) -> dict[str, object]:
    case = next(case for case in CASES if case.name == order["case"])
    use = with_udf if variant.runs_udf else without_udf
    with runtime_confs(spark, case.confs):
        frame = case.build(Scene(spark, directory, int(order["rows"]), use))
        if _stays_on_stock(frame, variant):
            return {"stays_on_stock": True}
        try:
            return {"wall_s": _seconds(frame)}
        except (PySparkException, Py4JJavaError) as error:
            return {"failed": str(error).strip().splitlines()[-1]}


def _seconds(frame: DataFrame) -> float:
    started = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def _stays_on_stock(frame: DataFrame, variant: Variant) -> bool:
    """Return whether the connector left a function to stock; raise SystemExit if the plan does not fit the variant."""
    plan = executed_plan(frame)
    flight, stock = bool(flight_operators(plan)), bool(stock_operators(plan))
    if (flight or stock) != variant.runs_udf or (flight and not variant.connector):
        raise SystemExit(f"the plan is not that of this variant:\n{plan}")
    return variant.connector and stock


def _answer(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
