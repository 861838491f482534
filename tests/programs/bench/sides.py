# SPDX-License-Identifier: Apache-2.0
"""`make bench-sides`: division of a query's CPU time between executors and pool, compared with stock.

The result shows how many cores executors no longer need, and how many the pool needs. On stock, executors run the JVM
and its Python workers. With Updraft, executors run the JVM, and the pool runs the front and the Python workers. CPU
seconds are those of whole process trees. The two sides take turns.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

from tests.programs.bench.case import Case
from tests.programs.bench.cases import CASES
from tests.programs.bench.spark_process import POOL_WORKERS, SparkProcess
from tests.programs.bench.variants import VARIANTS
from tests.support.cpu import cpu_seconds
from tests.support.paths import BUILD, connector_jar
from tests.support.pool import LocalPool

_DIRECTORY = BUILD / "bench"
_STOCK, _OURS = "stock-sync-columnar", "updraft"
_DEFAULT_CASES = ["parquet_add", "pandas_add", "pickled", "cpu_bound", "grouped_pandas_small"]
_WARM_UP_RUNS = 3


@dataclass
class Sides:
    """CPU seconds of the counted runs of one case."""

    case: str
    stock: list[float] = field(default_factory=list)
    executor: list[float] = field(default_factory=list)
    pool: list[float] = field(default_factory=list)

    def shares(self) -> tuple[float, float]:
        """Return the median CPU seconds of executors and of the pool, as shares of the CPU seconds of stock."""
        stock = statistics.median(self.stock)
        return statistics.median(self.executor) / stock, statistics.median(self.pool) / stock


def main() -> int:
    """Measure, write build/bench/sides.json, print the table."""
    options, load = _options(), os.getloadavg()[0]
    connector_jar()
    cases = [case for case in CASES if any(fnmatch.fnmatch(case.name, pattern) for pattern in options.cases)]
    titles = {case.name: case.title for case in CASES}
    print(f"{options.rounds} runs of each, {os.cpu_count()} cores, load average {load:.1f} at the start")
    found: list[Sides] = []
    for sides in _measure(cases, options.rounds):
        if not found:
            print(f"{'share of the CPU time of stock':40}{'executors':>10}{'pool':>8}{'together':>10}")
        found.append(sides)
        executor, pool = sides.shares()
        print(f"{titles[sides.case]:40}{executor:10.2f}{pool:8.2f}{executor + pool:10.2f}", flush=True)
        (_DIRECTORY / "sides.json").write_text(json.dumps([asdict(sides) for sides in found], indent=1) + "\n")
    return 0


def _measure(cases: Sequence[Case], rounds: int) -> Iterator[Sides]:
    data = _DIRECTORY / "data"
    data.mkdir(parents=True, exist_ok=True)
    variants = {variant.name: variant for variant in VARIANTS}
    with LocalPool(workers=POOL_WORKERS) as pool:
        print(
            f"idle, the pool of {POOL_WORKERS} workers takes {_memory_mib(pool)} MiB (proportional set size)",
            flush=True,
        )
        stock = SparkProcess(variants[_STOCK], "", None, data)
        ours = SparkProcess(variants[_OURS], pool.tcp_endpoint, None, data)
        try:
            for case in cases:
                if case.table is not None:
                    case.table.write(data, case.rows)
                sides = Sides(case.name)
                for number in range(_WARM_UP_RUNS + rounds):
                    of_stock = stock.run(case, case.rows)[1]
                    before = cpu_seconds([pool.pid])
                    of_executor = ours.run(case, case.rows)[1]
                    of_pool = cpu_seconds([pool.pid]) - before
                    if number >= _WARM_UP_RUNS:
                        sides.stock.append(round(of_stock, 3))
                        sides.executor.append(round(of_executor, 3))
                        sides.pool.append(round(of_pool, 3))
                yield sides
        finally:
            stock.stop()
            ours.stop()


def _memory_mib(pool: LocalPool) -> int:
    """Return the memory of all processes of the pool, where a page that several processes share counts once."""
    return sum(process.memory_full_info().pss for process in pool.members()) >> 20


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-sides", description=__doc__)
    parser.add_argument("--cases", nargs="+", default=_DEFAULT_CASES, help="names of bench-udf's cases, or patterns")
    parser.add_argument("--rounds", type=int, default=7, help="counted runs of each (7)")
    options = parser.parse_args()
    for pattern in options.cases:
        if not any(fnmatch.fnmatch(case.name, pattern) for case in CASES):
            parser.error(f"no case is called {pattern}")
    return options


if __name__ == "__main__":
    sys.exit(main())
