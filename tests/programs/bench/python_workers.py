# SPDX-License-Identifier: Apache-2.0
"""Benchmark of Spark's own Python workers, on stock and on a pool.

It prints seconds per job and per state call, then the memory of the JVM and of its child processes. The two sides take
turns, each with a new JVM for each turn. Every case runs a few times before it is measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd
import psutil
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tests.support.paths import PYTHON, REPOSITORY
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, local_spark
from tests.workers.sides import LAUNCHER, PLUGIN

_ROWS = 1_000_000
_KEYS = 200
_CALLS = 20
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def rdd_map(spark: SparkSession) -> None:
    assert spark.sparkContext.range(_ROWS, numSlices=2).map(lambda number: number + 1).count() == _ROWS


class _Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        return ((number, "text") for number in range(_ROWS // 20))


class _Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "number long, text string"

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader()


def data_source(spark: SparkSession) -> None:
    spark.dataSource.register(_Source)
    assert spark.read.format("numbers").load().count() == _ROWS // 10


def _stream(spark: SparkSession, name: str, mapped: Callable[[Any], Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        spark.range(0, _KEYS * 10, 1, 1).selectExpr(f"id % {_KEYS} AS key").write.parquet(f"{directory}/input")
        grouped = spark.readStream.schema("key long").parquet(f"{directory}/input").groupBy("key")
        query = mapped(grouped).writeStream.format("noop").outputMode("update").queryName(name)
        query.option("checkpointLocation", f"{directory}/state").trigger(availableNow=True).start().awaitTermination()


def pandas_with_state(spark: SparkSession) -> None:
    def counted(key: tuple[int], tables: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        state.update((sum(map(len, tables)),))
        yield pd.DataFrame({"key": [key[0]]})

    _stream(
        spark,
        "pandas",
        lambda grouped: grouped.applyInPandasWithState(counted, "key long", "n long", "update", "NoTimeout"),
    )


class _Calls(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._value = handle.getValueState("value", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], _timers: Any) -> Iterator[pd.DataFrame]:  # noqa: N802
        for number in range(_CALLS):
            self._value.update((number,))
        yield pd.DataFrame({"key": [key[0]]})

    def close(self) -> None:
        pass


def transform_with_state(spark: SparkSession) -> None:
    _stream(
        spark,
        "transform",
        lambda grouped: grouped.transformWithStateInPandas(_Calls(), "key long", "update", "none"),
    )


CASES = (rdd_map, data_source, pandas_with_state, transform_with_state)


def _memory_mib(spark: SparkSession) -> dict[str, float]:
    """Return MiB of live objects and of Netty's buffers in the JVM, and of the JVM's child processes."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.gc()
    heap = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()
    buffers = jvm.io.netty.util.internal.PlatformDependent.usedDirectMemory()
    (java,) = (child for child in psutil.Process().children(recursive=True) if child.name() == "java")
    processes = sum(child.memory_full_info().pss for child in java.children(recursive=True))
    sizes = {"heap": heap, "buffers": buffers, "processes": processes}
    return {name: size / (1 << 20) for name, size in sizes.items()}


def measure(endpoint: str, runs: int, warm: int) -> dict[str, dict[str, float]]:
    """Return the median `seconds` of each case and the memory in `mib` at the end; an empty endpoint means stock."""
    confs = {"spark.sql.streaming.stateStore.providerClass": _PROVIDER, "spark.sql.shuffle.partitions": "2"}
    if endpoint:
        confs |= {ENDPOINT: endpoint, "spark.plugins": PLUGIN}
    spark = local_spark("bench", connector=bool(endpoint), conf=confs, python=LAUNCHER if endpoint else PYTHON)
    medians = {}
    for case in CASES:
        seconds = []
        for _ in range(warm + runs):
            began = time.monotonic()
            case(spark)
            seconds.append(time.monotonic() - began)
        medians[case.__name__] = statistics.median(seconds[warm:])
    mib = _memory_mib(spark)
    spark.stop()
    return {"seconds": medians, "mib": mib}


def _turn(endpoint: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    command = [str(PYTHON), "-m", "tests.programs.bench.python_workers", "--runs", str(options.runs)]
    command += ["--warm", str(options.warm), "--side", endpoint]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return measured


def main() -> None:
    """Print a table of the sides' medians over all turns, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="measured runs of a case in a turn")
    parser.add_argument("--warm", type=int, default=2, help="runs of a case before those")
    parser.add_argument("--turns", type=int, default=3, help="JVM starts of each side")
    parser.add_argument("--unix", action="store_true", help="reach the pool through its Unix socket")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is not None:
        json.dump(measure(options.side, options.runs, options.warm), sys.stdout)
        return
    with LocalPool(workers=2) as pool:
        endpoint = pool.unix_endpoint if options.unix else pool.tcp_endpoint
        turns = [(_turn("", options), _turn(endpoint, options)) for _ in range(options.turns)]
    print("| case | stock, s | pool, s | pool / stock |\n| --- | ---: | ---: | ---: |")
    for case in CASES:
        stock, ours = (statistics.median(turn[side]["seconds"][case.__name__] for turn in turns) for side in (0, 1))
        print(f"| {case.__name__} | {stock:.3f} | {ours:.3f} | {ours / stock:.2f} |")
    for part in ("heap", "buffers", "processes"):
        stock, ours = (statistics.median(turn[side]["mib"][part] for turn in turns) for side in (0, 1))
        print(f"| {part}, MiB | {stock:.1f} | {ours:.1f} | |")
    extra = 1000 / (_KEYS * _CALLS)
    call = [
        statistics.median(turn[side]["seconds"]["transform_with_state"] for turn in turns) * extra for side in (0, 1)
    ]
    print(f"\nA call of the state takes at most {call[0]:.2f} ms on stock and {call[1]:.2f} ms on the pool.")


if __name__ == "__main__":
    main()
