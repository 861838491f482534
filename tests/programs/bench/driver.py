# SPDX-License-Identifier: Apache-2.0
"""Spark process that runs cases. Requests and answers are lines of JSON. `spark_process.py` starts the process."""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.programs.bench.case import Case, Scene, with_udf, without_udf
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
    """Serve requests. Arguments: variant, endpoint (may be empty), directory of the tables."""
    name, endpoint, directory = sys.argv[1:]
    warnings.filterwarnings("ignore", module="pyspark")
    variant = next(variant for variant in VARIANTS if variant.name == name)
    cases = {case.name: case for case in CASES}
    cores = Case.cores
    spark = _session(variant, endpoint, cores)
    _answer({"ready": spark.version})
    for line in sys.stdin:
        order = json.loads(line)
        if "case" in order:
            case = cases[order["case"]]
            if case.cores != cores:
                spark.stop()
                cores = case.cores
                spark = _session(variant, endpoint, cores)
            _answer(_run(case, int(order["rows"]), variant, spark, Path(directory)))
        else:
            spark._jvm.System.gc()
            _answer({"clean": True})
    spark.stop()


def _session(variant: Variant, endpoint: str, cores: int) -> SparkSession:
    confs = {"spark.log.level": "FATAL", "spark.master": f"local[{cores}]", **variant.confs}
    if endpoint:
        confs[ENDPOINT] = endpoint
    return local_spark(f"bench-{variant.name}", connector=variant.connector, conf=confs)


def _run(case: Case, rows: int, variant: Variant, spark: SparkSession, directory: Path) -> dict[str, object]:
    use = with_udf if variant.runs_udf else without_udf
    with runtime_confs(spark, case.confs):
        frame = case.build(Scene(spark, directory, rows, use))
        try:
            seconds, plan = _streamed(frame) if frame.isStreaming else _written(frame)
        except (PySparkException, Py4JJavaError) as error:
            return {"failed": str(error).strip().splitlines()[-1]}
        return {"stays_on_stock": True} if _stays_on_stock(plan, variant) else {"wall_s": seconds}


def _written(frame: DataFrame) -> tuple[float, str]:
    """Run a query; return its seconds and its plan."""
    started = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started, executed_plan(frame)


def _streamed(frame: DataFrame) -> tuple[float, str]:
    """Run a stream until it has processed all its input; return its seconds and its plan."""
    with tempfile.TemporaryDirectory() as checkpoint:
        started = time.perf_counter()
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return time.perf_counter() - started, str(query._jsq.explainInternal(False))


def _stays_on_stock(plan: str, variant: Variant) -> bool:
    """Return whether the connector left a function to stock; raise SystemExit if the plan is not the variant's."""
    flight, stock = bool(flight_operators(plan)), bool(stock_operators(plan))
    if (flight or stock) != variant.runs_udf or (flight and not variant.connector):
        raise SystemExit(f"the plan is not that of this variant:\n{plan}")
    return variant.connector and stock


def _answer(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
