# SPDX-License-Identifier: Apache-2.0
"""`make bench-udf`: UDFs on a pool against stock PySpark in each of its configurations.

Each variant has its own Spark process (local[2], unless the case sets another number of cores; noop sink). All
processes stay alive and take turns, so noise affects all variants equally and no variant runs code that was compiled
for another. Short runs are repeated more often, in the warm-up and in the measurement. Warm-up runs do not count. If a
stock configuration is far slower than the best stock configuration in the warm-up, it is not measured further. CPU
seconds are those of every process: the driver, its JVM, Spark's Python workers and the pool, including children that
have ended.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import platform
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from tests.programs.bench import record as records_file
from tests.programs.bench.case import Case
from tests.programs.bench.cases import CASES, CHARTS
from tests.programs.bench.chart import draw
from tests.programs.bench.record import Record
from tests.programs.bench.report import print_table, print_targets
from tests.programs.bench.spark_process import POOL_WORKERS, SparkProcess, StaysOnStockError, spark_processes
from tests.programs.bench.variants import QUICK, VARIANTS
from tests.support.paths import connector_jar, use_connector_jar

_NAMES = [variant.name for variant in VARIANTS]
_FULL = {"rows_scale": 1.0, "warm_up": 2, "repeat": 5, "variants": _NAMES}
_QUICK = {"rows_scale": 0.25, "warm_up": 2, "repeat": 3, "variants": QUICK}
_HOPELESS_RATIO = 1.4
# Least total seconds of a case's runs, because the JIT compiler needs time rather than runs, and short runs vary more.
_SECONDS_OF_RUNS = 4.0
_MAX_TIMES_AS_MANY = 3


def main() -> int:
    """Measure, write udf.json and the charts below build/bench, and print a table."""
    options = _options()
    use_connector_jar(options.jar)
    connector_jar()
    data, target = records_file.MEASURED / "data", records_file.MEASURED / "udf.json"
    data.mkdir(parents=True, exist_ok=True)
    cases = [case for case in CASES if any(fnmatch.fnmatch(case.name, pattern) for pattern in options.cases)]
    for case in cases:
        if case.table is not None:
            case.table.write(data, case.scaled(options.rows_scale))
    measured = {case.name for case in cases}
    records = [record for record in records_file.read(target) if options.add and record.case not in measured]
    for _ in range(options.starts):
        with spark_processes([v for v in VARIANTS if v.name in options.variants], data) as processes:
            for case in cases:
                records = records_file.pooled([*records, *_measure(case, processes, options)])
                records_file.write(records, target)
    ratios = print_table(CASES, records)
    print_targets(ratios)
    for name, shown in CHARTS.items():
        if bars := [ratios[case] for case in shown if case in ratios]:
            draw(bars, _caption(), records_file.MEASURED / name)
    return 0


def _caption() -> str:
    return (
        f"PySpark {pyspark.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, local[2] unless "
        f"named, pool of {POOL_WORKERS} workers on the same machine, noop sink, medians. "
        "The best stock is chosen per case."
    )


def _options() -> argparse.Namespace:
    names = "\n".join(f"  {case.name:27}{case.title}" for case in CASES)
    parser = argparse.ArgumentParser(
        prog="bench-udf",
        description=__doc__,
        epilog=f"cases:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jar", type=Path, help="the connector (default: where `make connector` puts it)")
    parser.add_argument("--cases", nargs="+", default=["*"], help="only these: names or patterns such as 'window_*'")
    parser.add_argument("--add", action="store_true", help="keep what udf.json has of other cases: a run in parts")
    parser.add_argument("--quick", action="store_true", help="few rows, few runs, few variants: to try one case")
    parser.add_argument("--variants", nargs="*", choices=_NAMES, help="only these")
    parser.add_argument("--repeat", type=int, help="counted runs of each case and variant, at least (5)")
    parser.add_argument("--warm-up", type=int, help="runs before those, at least (2)")
    parser.add_argument(
        "--starts",
        type=int,
        default=1,
        help="start each Spark so often and take the runs together: what a JVM makes of a short case varies (1)",
    )
    parser.add_argument("--rows-scale", type=float, help="multiplies every number of rows (1)")
    options = parser.parse_args()
    for pattern in options.cases:
        if not any(fnmatch.fnmatch(case.name, pattern) for case in CASES):
            parser.error(f"no case is called {pattern}")
    for name, value in (_QUICK if options.quick else _FULL).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def _measure(case: Case, processes: Sequence[SparkProcess], options: argparse.Namespace) -> list[Record]:
    rows, started = case.scaled(options.rows_scale), time.monotonic()
    records: dict[SparkProcess, Record] = {}
    for process in processes:
        if case.runs_as(process.variant):
            records[process] = Record(case.name, process.variant.name, rows)
    for process, record in list(records.items()):
        try:
            # Do not count the first run in a new Spark: it takes as long as all other warm-up runs together, but
            # compiles little.
            while _wants_more(record.warm_up_wall_s[1:], options.warm_up):
                record.warm_up_wall_s.append(round(process.run(case, rows)[0], 4))
        except StaysOnStockError:
            del records[process]
    contenders = _contenders(records)
    compared = [records[process].wall_s for process in contenders if process.variant.runs_udf]
    order = random.Random(case.name)
    while any(_wants_more(walls, options.repeat) for walls in compared):
        # Shuffle in each round, so that no process always runs after the same process.
        for process in order.sample(contenders, len(contenders)):
            wall, cpu = process.run(case, rows)
            records[process].wall_s.append(round(wall, 4))
            records[process].cpu_s.append(round(cpu, 4))
    print(f"measured {case.name}: {rows:,} rows, {time.monotonic() - started:.0f} s", flush=True)
    return list(records.values())


def _wants_more(walls: Sequence[float], runs: int) -> bool:
    return len(walls) < runs or (sum(walls) < _SECONDS_OF_RUNS and len(walls) < _MAX_TIMES_AS_MANY * runs)


def _contenders(records: Mapping[SparkProcess, Record]) -> list[SparkProcess]:
    """Return all processes except stock configurations that are too slow to become the fastest."""
    warm = {process: min(record.warm_up_wall_s, default=0.0) for process, record in records.items()}
    bound = _HOPELESS_RATIO * min((seconds for process, seconds in warm.items() if process.variant.is_stock), default=0)
    return [process for process, seconds in warm.items() if not process.variant.is_stock or seconds <= bound]


if __name__ == "__main__":
    sys.exit(main())
