# SPDX-License-Identifier: Apache-2.0
"""`make bench-rapids-gpu`: cost of crossing between GPU stages and a pool, and of writing a query's output.

The first part compares the pool with the accelerator's own Python operators, and both with plain Spark. The second part
writes the output of NDS's query `store_sales` x `store`, 29 columns, with RAPIDS (synchronously, and asynchronously
while it holds the GPU), with Updraft's writer on the GPU and on the CPU, and with plain Spark, to memory and to disk.
`--stand-in` tries this program without the accelerator and the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tests.rapids.queries import QUERIES, write_rows
from tests.support.paths import BUILD, connector_jar
from tests.support.pool import LocalPool
from tests.support.spark import ENABLED, ENDPOINT, EXTENSION, local_spark, runtime_confs
from tests.support.writer import LocalWriter

_RAPIDS = "spark.rapids.sql.enabled"
_ASYNCHRONOUS, _HOLD = "spark.rapids.sql.asyncWrite.queryOutput.enabled", "spark.rapids.sql.queryOutput.holdGpuInTask"
_WRITER = "spark.updraft.write.endpoint"
_CROSSINGS = ("arrow", "pandas", "texts", "map_in_arrow")
_QUERY = """
SELECT s.* FROM store s, store_sales ss WHERE s.s_store_sk <= ss.ss_store_sk AND s.s_store_sk + 41 > ss.ss_store_sk
"""
_STORES, _COLUMNS = 402, 28
_SAMPLE_SECONDS = 0.2


@dataclass
class _Machine:
    """Samples of the GPU, and of all processes of this program, while a query runs."""

    gpu_busy: list[float] = field(default_factory=list)
    gpu_mib: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0

    def __enter__(self) -> _Machine:
        self._over = threading.Event()
        self._before = _cpu_seconds()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()
        self.cpu_seconds = _cpu_seconds() - self._before

    def _sample(self) -> None:
        command = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits"]
        while not self._over.wait(_SAMPLE_SECONDS):
            self.memory_mb.append(sum(_resident_bytes(process) for process in _processes()) / 1e6)
            with suppress(OSError, subprocess.SubprocessError):
                answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout
                busy, used = answer.splitlines()[0].split(",")
                self.gpu_busy.append(float(busy))
                self.gpu_mib.append(float(used))


def main() -> None:
    """Measure everything and write the results as JSON."""
    parser = argparse.ArgumentParser(prog="make bench-rapids-gpu", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 20 million rows, and 400,000 sales to join")
    parser.add_argument("--repeat", type=int, default=3, help="counted runs of each query (default: %(default)s)")
    parser.add_argument("--stand-in", action="store_true", help="try this program without the accelerator")
    parser.add_argument("--output", type=Path, default=BUILD / "bench/rapids-gpu.json")
    options = parser.parse_args()
    measured: dict[str, Any] = {"cores": os.cpu_count()}
    with ExitStack() as stack:
        memory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        disk = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=BUILD)))
        pool = stack.enter_context(LocalPool(workers=min(16, os.cpu_count() or 2)))
        encoders = ("cpu",) if options.stand_in else ("gpu", "cpu")
        writers = {name: stack.enter_context(_writer(name, memory, disk)) for name in encoders}
        spark = _session(pool.tcp_endpoint, stand_in=options.stand_in)
        stack.callback(spark.stop)
        _make_tables(spark, memory, options.scale)
        measured["crossing"] = dict(_crossings(spark, memory, options))
        measured["writing"] = {
            f"{way}, {sink}": entry
            for sink, target in (("memory", memory), ("disk", disk))
            for way, entry in _writing(spark, writers, target, options)
        }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(measured, indent=1) + "\n")


def _writer(encoder: str, *roots: Path) -> LocalWriter:
    return LocalWriter(roots[0], arguments=["--root", str(roots[1]), "--encoder", encoder])


def _session(endpoint: str, *, stand_in: bool) -> SparkSession:
    jars, extensions = [str(connector_jar())], [EXTENSION]
    confs = {
        "spark.master": "local[*]",
        "spark.driver.memory": "2g" if stand_in else "24g",
        "spark.sql.session.timeZone": "UTC",
        ENDPOINT: endpoint,
    }
    if not stand_in:
        jars.append(os.environ["UPDRAFT_RAPIDS_JAR"])
        extensions.append("com.nvidia.spark.rapids.SQLExecPlugin")
        confs |= {
            "spark.plugins": "com.nvidia.spark.SQLPlugin",
            "spark.rapids.sql.explain": "NONE",
            # Leave the remaining GPU memory to the writer.
            "spark.rapids.memory.gpu.allocFraction": "0.35",
            "spark.rapids.memory.gpu.minAllocFraction": "0",
            "spark.rapids.memory.pinnedPool.size": "8g",
            "spark.rapids.sql.concurrentGpuTasks": "4",
            "spark.rapids.sql.python.gpu.enabled": "false",
        }
    confs |= {"spark.driver.extraClassPath": ":".join(jars), "spark.sql.extensions": ",".join(extensions)}
    spark = local_spark("updraft-rapids-gpu", connector=False, conf=confs)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _make_tables(spark: SparkSession, folder: Path, scale: float) -> None:
    number = F.col("id")
    columns = [_store_column(index) for index in range(1, _COLUMNS + 1)]
    named = [column.alias(f"s_c{index}") for index, column in enumerate(columns, start=1)]
    store = (number * 7919 % _STORES + 1).cast("int").alias("ss_store_sk")
    with runtime_confs(spark, {_RAPIDS: "false"}):
        write_rows(spark, str(folder / "rows"), int(20_000_000 * scale))
        stores = spark.range(1, _STORES + 1).select(number.cast("int").alias("s_store_sk"), *named)
        stores.write.parquet(str(folder / "store"))
        spark.range(0, int(400_000 * scale), 1, 32).select(store).write.parquet(str(folder / "store_sales"))
    for table in ("store", "store_sales"):
        spark.read.parquet(str(folder / table)).createOrReplaceTempView(table)


def _store_column(index: int) -> Column:
    number = F.col("id")
    match index % 3:
        case 0:
            return F.concat(F.lit(f"column {index} of store "), number.cast("string"))
        case 1:
            return (number * index).cast("int")
        case _:
            return (number / F.lit(index)).cast("decimal(7,2)")


def _crossings(spark: SparkSession, folder: Path, options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    for name in _CROSSINGS:
        for on_gpu in ("false",) if options.stand_in else ("true", "false"):
            for on_pool in ("true", "false"):
                where = f"{'RAPIDS' if on_gpu == 'true' else 'Spark'}, {'pool' if on_pool == 'true' else 'own workers'}"
                with runtime_confs(spark, {_RAPIDS: on_gpu, ENABLED: on_pool}):
                    entry = _measured(partial(_collect, spark, name, folder / "rows"), options.repeat)
                    yield f"{name}: {where}", _shown(f"{name}: {where}", entry)


def _collect(spark: SparkSession, name: str, rows: Path) -> None:
    QUERIES[name](spark, str(rows)).collect()


def _write(spark: SparkSession, data_format: str, target: Path) -> None:
    spark.sql(_QUERY).write.mode("overwrite").format(data_format).save(str(target))


def _writing(
    spark: SparkSession, writers: dict[str, LocalWriter], folder: Path, options: argparse.Namespace
) -> Iterator[tuple[str, Any]]:
    ways: dict[str, tuple[str, dict[str, str]]] = {}
    if not options.stand_in:
        ways["RAPIDS, synchronous"] = "parquet", {_RAPIDS: "true", _ASYNCHRONOUS: "false", _HOLD: "false"}
        ways["RAPIDS, asynchronous with the GPU held"] = (
            "parquet",
            {_RAPIDS: "true", _ASYNCHRONOUS: "true", _HOLD: "true"},
        )
    for name, writer in writers.items():
        on_gpu = "false" if options.stand_in else "true"
        ways[f"Updraft's writer on the {name.upper()}"] = (
            "updraft-parquet",
            {_RAPIDS: on_gpu, _WRITER: writer.tcp_endpoint},
        )
    ways["Spark"] = "parquet", {_RAPIDS: "false"}
    for way, (data_format, confs) in ways.items():
        target = folder / "written"
        with runtime_confs(spark, confs):
            entry = _measured(partial(_write, spark, data_format, target), options.repeat)
        with runtime_confs(spark, {_RAPIDS: "false"}):
            entry["rows"] = spark.read.parquet(str(target)).count()
        entry["bytes"] = sum(file.stat().st_size for file in target.glob("*.parquet"))
        yield way, _shown(way, entry)


def _measured(run: Callable[[], object], repeat: int) -> dict[str, Any]:
    run()
    walls, machine = [], _Machine()
    with machine:
        for _ in range(repeat):
            started = time.perf_counter()
            run()
            walls.append(round(time.perf_counter() - started, 3))
    return {
        "seconds": statistics.median(walls),
        "all_seconds": walls,
        "cpu_seconds": round(machine.cpu_seconds / repeat, 2),
        "memory_mb": round(max(machine.memory_mb, default=0)),
        "gpu_busy_percent": round(statistics.mean(machine.gpu_busy), 1) if machine.gpu_busy else None,
        "gpu_mib": max(machine.gpu_mib, default=None),
    }


def _shown(what: str, entry: dict[str, Any]) -> dict[str, Any]:
    print(what, entry, flush=True)
    return entry


def _processes() -> list[psutil.Process]:
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


def _resident_bytes(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def _cpu_seconds() -> float:
    total = 0.0
    for process in _processes():
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


if __name__ == "__main__":
    main()
