# SPDX-License-Identifier: Apache-2.0
"""`make bench-threads`: CPU seconds of a query by thread and process, with its UDF on a pool and without the UDF.

The figures exclude the JVM's compilers and garbage collector, because a query without a UDF uses them too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import psutil

from tests.programs.bench.case import Case
from tests.programs.bench.cases import CASES
from tests.programs.bench.spark_process import SparkProcess
from tests.programs.bench.variants import VARIANTS
from tests.support.paths import BUILD, connector_jar
from tests.support.pool import LocalPool

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_WARM_UP_RUNS = 10
_TRANSPORTS = ["tcp", "unix"]
_DEFAULT = ["range_add", "parquet_add", "three_columns", "strings"]
# Parts of the work, by the prefix of a thread's name, in Spark and in the pool.
_OF_SPARK = {"Executor task": "task threads", "updraft": "event loop"}
_OF_POOL = {"python": "front", "event_engine": "front", "updraft-worker": "workers"}


def main() -> int:
    """Measure each case with and without its UDF, and print the means."""
    names = [case.name for case in CASES if case.has_floor]
    parser = argparse.ArgumentParser(prog="bench-threads", description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=names, default=_DEFAULT, metavar="CASE", help=", ".join(names))
    parser.add_argument("--transports", nargs="+", choices=_TRANSPORTS, default=["tcp"], help="to the pool (tcp)")
    parser.add_argument("--runs", type=int, default=10, help="counted runs of each case (10)")
    options = parser.parse_args()
    connector_jar()
    data = BUILD / "bench" / "data"
    data.mkdir(parents=True, exist_ok=True)
    cases = [case for case in CASES if case.name in options.cases]
    for case in cases:
        if case.table is not None:
            case.table.write(data, case.rows)
    variants = {variant.name: variant for variant in VARIANTS}
    for transport in ("no-udf", *options.transports):
        with LocalPool(workers=2) as pool:
            endpoint = {"no-udf": "", "tcp": pool.tcp_endpoint}.get(transport, pool.unix_endpoint)
            process = SparkProcess(variants["updraft" if endpoint else "no-udf"], endpoint, pool.pid, data)
            try:
                for case in cases:
                    _measure(transport, case, process, options.runs, pool.pid)
            finally:
                process.stop()
    return 0


def _measure(variant: str, case: Case, process: SparkProcess, runs: int, pool: int) -> None:
    for _ in range(_WARM_UP_RUNS):
        process.run(case, case.rows)
    walls, spent = [], defaultdict[str, float](float)
    for _ in range(runs):
        before = _seconds(process.pid, pool)
        walls.append(process.run(case, case.rows)[0])
        for thread, seconds in _seconds(process.pid, pool).items():
            spent[thread[0]] += seconds - before.get(thread, 0.0)
    parts = ", ".join(f"{part} {seconds / runs:.3f}" for part, seconds in sorted(spent.items()))
    print(f"{case.name:16}{variant:9}{statistics.median(walls):7.3f} s; CPU s: {parts}", flush=True)


def _seconds(spark: int, pool: int) -> dict[tuple[str, str], float]:
    """Return the CPU seconds of the parts' threads, by part and by thread id."""
    found: dict[tuple[str, str], float] = {}
    for root, parts in ((spark, _OF_SPARK), (pool, _OF_POOL)):
        for process in psutil.Process(root).children(recursive=True):
            for stat in Path(f"/proc/{process.pid}/task").glob("*/stat"):
                try:
                    name, _, fields = stat.read_text().partition("(")[2].rpartition(")")
                except OSError:
                    # The thread has ended meanwhile.
                    continue
                for start in parts:
                    if name.startswith(start):
                        user, system = fields.split()[11:13]
                        found[parts[start], stat.parent.name] = (int(user) + int(system)) / _TICKS_PER_SECOND
    return found


if __name__ == "__main__":
    sys.exit(main())
