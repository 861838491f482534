# SPDX-License-Identifier: Apache-2.0
"""`make bench-progress`: cost of a notebook's progress line for a light query, in a Jupyter kernel.

The same cell runs in pairs, with and without the line, in a random order within each pair. The program prints the
medians in wall seconds and in CPU seconds of all processes (kernel, JVM, pool and workers), and the median ratio of the
pairs with its 95% confidence interval.

The ratios of pairs are not exact to a tenth of a percent. So the program also updates the line many times while a query
sleeps, and divides the CPU time of one update by the CPU time that the light query uses between two updates. If this
share exceeds --at-most (in percent), the exit status is 1; the promise is 1.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.local.kernel import Kernel, Output, running_kernel
from tests.programs.bench.against import outside
from tests.support.carried_jar import carry_jar
from tests.support.cpu import cpu_seconds

_SESSION = """
import os
import threading
import time
import updraft.spark
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf, udf
from updraft.spark import cell_progress

pool = updraft.spark.local_pool(workers=2)
confs = {**pool.spark_conf(), "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
spark = SparkSession.builder.config(map=confs).master("local[2]").getOrCreate()
plus = pandas_udf(lambda x: x + 1, "long")

@udf("long")
def sleepy(x):
    time.sleep(600)

def query(rows):
    spark.range(rows, numPartitions=2).select(plus("id")).write.format("noop").mode("overwrite").save()

def sleep():
    try:
        spark.range(2, numPartitions=2).select(sleepy("id")).collect()
    except Exception:
        pass
print(os.getpid())
"""
_ASLEEP = """
pool.shows_progress = False
sleeping = threading.Thread(target=sleep)
sleeping.start()
while pool.status()["workers"]["busy"] < 2:
    time.sleep(0.1)
"""
_UPDATES = """
show = cell_progress._shown_in_place()
for _ in range({updates}):
    show(cell_progress.progress_line(pool.status(), 1, cell_progress._tasks(), 1.0))
"""
_UPDATE_SECONDS = 1.0


def main() -> int:
    """Measure and print; return 1 if the updates' share of CPU time exceeds --at-most."""
    options = _options()
    print(f"{options.pairs} pairs; {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start")
    with tempfile.TemporaryDirectory() as directory:
        carried = carry_jar(Path(directory, "site"))
        os.environ["PYTHONPATH"] = str(carried.parent)
        with running_kernel(Path(directory)) as kernel:
            return _measure(kernel, options)


def _measure(kernel: Kernel, options: argparse.Namespace) -> int:
    root = int(_run(kernel, _SESSION).text.split()[-1])
    rows = _rows(kernel, root, options.seconds)
    order, pairs = random.Random("bench-progress"), list[dict[bool, tuple[float, float]]]()
    for number in range(options.warm_up + options.pairs):
        taken = {}
        for shows in order.sample([True, False], 2):
            _run(kernel, f"pool.shows_progress = {shows}")
            taken[shows] = _taken(kernel, root, f"query({rows})", shows=shows)
        if number >= options.warm_up:
            pairs.append(taken)
    for kind, unit in enumerate(("wall seconds", "CPU seconds")):
        _print(unit, [(taken[True][kind], taken[False][kind]) for taken in pairs])
    _run(kernel, _ASLEEP)
    _, updates = _taken(kernel, root, _UPDATES.format(updates=options.updates), shows=True)
    _run(kernel, "spark.sparkContext.cancelAllJobs()\nsleeping.join()")
    milliseconds = updates / options.updates * 1000
    wall, cpu = (statistics.median(taken[False][kind] for taken in pairs) for kind in (0, 1))
    percent = milliseconds / 10 / _UPDATE_SECONDS / (cpu / wall)
    print(f"an update takes {milliseconds:.2f} CPU ms, one a second: {percent:.2f}% of the query's CPU time")
    return 0 if options.at_most is None or percent <= options.at_most else 1


def _rows(kernel: Kernel, root: int, seconds: float) -> int:
    """Return the number of rows for which the query takes this long."""
    rows = 5_000_000
    _run(kernel, "pool.shows_progress = False")
    for _ in range(3):
        wall, _ = _taken(kernel, root, f"query({rows})", shows=False)
        rows = int(rows * min(10, seconds / wall))
    print(f"a query has {rows:,} rows", flush=True)
    return rows


def _taken(kernel: Kernel, root: int, code: str, *, shows: bool) -> tuple[float, float]:
    """Return the wall seconds of a cell, and the CPU seconds of all processes during the cell."""
    began_at, cpu = time.monotonic(), cpu_seconds([root])
    shown = _run(kernel, code).shown
    taken = time.monotonic() - began_at, cpu_seconds([root]) - cpu
    if bool(shown) != shows:
        raise SystemExit(f"bench-progress: the line was {'not ' if shows else ''}shown; --seconds makes a query longer")
    return taken


def _run(kernel: Kernel, code: str) -> Output:
    output = kernel.run(code)
    if output.error:
        raise SystemExit(f"bench-progress: a cell failed:\n{output.text}")
    return output


def _print(unit: str, pairs: Sequence[tuple[float, float]]) -> None:
    ratios = sorted(with_line / without for with_line, without in pairs)
    beyond = outside(len(ratios))
    shown, hidden = (statistics.median(side) for side in zip(*pairs, strict=True))
    interval = f"{ratios[beyond]:.3f} to {ratios[-1 - beyond]:.3f}"
    print(
        f"{unit}: {shown:.2f} with the line, {hidden:.2f} without; ratio {statistics.median(ratios):.3f} ({interval})",
        flush=True,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench-progress", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=20, help="counted pairs, 6 or more (20)")
    parser.add_argument("--warm-up", type=int, default=3, help="pairs that are not counted (3)")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long a query takes, about (8)")
    parser.add_argument("--updates", type=int, default=500, help="updates of the line beside a sleeping query (500)")
    parser.add_argument("--at-most", type=float, help="percent of the query's CPU time that updates may take")
    options = parser.parse_args()
    if options.pairs < 6:
        parser.error("--pairs takes 6 or more")
    return options


if __name__ == "__main__":
    sys.exit(main())
