# SPDX-License-Identifier: Apache-2.0
"""Benchmark of Spark's own Python workers, on stock and on a pool.

The program prints the time and the CPU time of each job, the memory of the JVM and of its child processes, and the time
of one call to a streaming state. The two sides take turns, with a new JVM in each turn. The program measures every case
after a few warm-up runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pandas as pd
import psutil
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tests.support.paths import PYTHON, REPOSITORY
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, local_spark
from tests.workers.jvm_memory import memory_mib
from tests.workers.sides import LAUNCHER, PLUGIN

_ROWS = 1_000_000
_KEYS = 200
_CALLS = 20
_TRANSFORMED = "transformed"
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


def _stream(spark: SparkSession, name: str, mapped: Callable[[Any], Any], sink: str = "noop") -> None:
    with tempfile.TemporaryDirectory() as directory:
        spark.range(0, _KEYS * 10, 1, 1).selectExpr(f"id % {_KEYS} AS key").write.parquet(f"{directory}/input")
        grouped = spark.readStream.schema("key long").parquet(f"{directory}/input").groupBy("key")
        query = mapped(grouped).writeStream.format(sink).outputMode("update").queryName(name)
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
    """Processor that times its calls to the state of each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._value = handle.getValueState("value", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], _timers: Any) -> Iterator[pd.DataFrame]:  # noqa: N802
        began = time.perf_counter()
        for number in range(_CALLS):
            self._call(number)
        yield pd.DataFrame({"key": [key[0]], "call_ms": [(time.perf_counter() - began) * 1000 / _CALLS]})

    def _call(self, number: int) -> None:
        self._value.update((number,))

    def close(self) -> None:
        pass


class _Reads(_Calls):
    def _call(self, number: int) -> None:
        self._value.exists()


class _Counts(_Calls):
    """Processor that counts a key's rows with three calls to the state, as many as most processors need."""

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], _timers: Any) -> Iterator[pd.DataFrame]:  # noqa: N802
        (before,) = self._value.get() if self._value.exists() else (0,)
        self._value.update((before + sum(map(len, rows)),))
        yield pd.DataFrame({"key": [key[0]], "call_ms": [0.0]})


def _transform(spark: SparkSession, processor: StatefulProcessor) -> None:
    _stream(
        spark,
        _TRANSFORMED,
        lambda grouped: grouped.transformWithStateInPandas(processor, "key long, call_ms double", "update", "none"),
        "memory",
    )


def transform_with_state(spark: SparkSession) -> None:
    _transform(spark, _Calls())


def transform_that_reads(spark: SparkSession) -> None:
    _transform(spark, _Reads())


def transform_that_counts(spark: SparkSession) -> None:
    _transform(spark, _Counts())


CASES = (
    rdd_map,
    data_source,
    pandas_with_state,
    transform_with_state,
    transform_that_reads,
    transform_that_counts,
)
_TIMED = {transform_with_state: "A change", transform_that_reads: "A read"}
"""Cases in which the processor times its calls to the state."""


def _cpu_seconds() -> float:
    """Return the CPU time of the benchmark so far: Spark with its workers, and the pool."""
    parent = psutil.Process(os.getppid())
    spent = 0.0
    for process in [parent, *parent.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            spent += sum(process.cpu_times()[:4])
    return spent


def _call_ms(spark: SparkSession) -> float:
    """Return the milliseconds of one call to the state: the median over all keys."""
    return float(spark.table(_TRANSFORMED).selectExpr("median(call_ms)").collect()[0][0])


def measure(
    endpoint: str, cases: Sequence[Callable[[SparkSession], None]], runs: int, warm: int
) -> dict[str, dict[str, float]]:
    """Return each case's medians (`seconds`, `cpu` seconds, milliseconds of a `call`), and the memory in `mib`.

    An empty endpoint means stock.
    """
    confs = {"spark.sql.streaming.stateStore.providerClass": _PROVIDER, "spark.sql.shuffle.partitions": "2"}
    if endpoint:
        confs |= {ENDPOINT: endpoint, "spark.plugins": PLUGIN}
    spark = local_spark("bench", connector=bool(endpoint), conf=confs, python=LAUNCHER if endpoint else PYTHON)
    found: dict[str, dict[str, float]] = {"seconds": {}, "cpu": {}, "call": {}}
    for case in cases:
        seconds, cpu, calls = [], [], []
        for _ in range(warm + runs):
            began, spent = time.monotonic(), _cpu_seconds()
            case(spark)
            seconds.append(time.monotonic() - began)
            cpu.append(_cpu_seconds() - spent)
            if case in _TIMED:
                calls.append(_call_ms(spark))
        for kind, values in (("seconds", seconds), ("cpu", cpu), ("call", calls)):
            if values:
                found[kind][case.__name__] = statistics.median(values[warm:])
    found["mib"] = memory_mib(spark)
    spark.stop()
    return found


def _turn(endpoint: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    command = [str(PYTHON), "-m", "tests.programs.bench.python_workers", "--runs", str(options.runs)]
    command += ["--warm", str(options.warm), "--side", endpoint, "--cases", *options.cases]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return measured


def main() -> None:
    """Print a table of each side's medians over all turns, and their ratio."""
    names = {case.__name__: case for case in CASES}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="measured runs of a case in a turn")
    parser.add_argument("--warm", type=int, default=2, help="runs of a case before those")
    parser.add_argument("--turns", type=int, default=3, help="JVM starts of each side")
    parser.add_argument("--unix", action="store_true", help="reach the pool through its Unix socket")
    parser.add_argument("--cases", nargs="+", choices=names, default=[*names], help="cases to run")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = [names[name] for name in options.cases]
    if options.side is not None:
        json.dump(measure(options.side, cases, options.runs, options.warm), sys.stdout)
        return
    with LocalPool(workers=2) as pool:
        endpoint = pool.unix_endpoint if options.unix else pool.tcp_endpoint
        turns = [(_turn("", options), _turn(endpoint, options)) for _ in range(options.turns)]

    def medians(kind: str, name: str) -> tuple[float, float]:
        stock, ours = (statistics.median(turn[side][kind][name] for turn in turns) for side in (0, 1))
        return stock, ours

    print("| case | stock, s | pool, s | pool / stock | CPU of stock, s | CPU of pool, s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in options.cases:
        (stock, ours), (stock_cpu, our_cpu) = medians("seconds", name), medians("cpu", name)
        print(f"| {name} | {stock:.3f} | {ours:.3f} | {ours / stock:.2f} | {stock_cpu:.2f} | {our_cpu:.2f} |")
    for part in ("heap", "buffers", "processes"):
        stock, ours = medians("mib", part)
        print(f"| {part}, MiB | {stock:.1f} | {ours:.1f} | | | |")
    for case, what in _TIMED.items():
        if case in cases:
            stock, ours = medians("call", case.__name__)
            print(f"\n{what} of the state takes {stock:.3f} ms on stock and {ours:.3f} ms on the pool.")


if __name__ == "__main__":
    main()
