# SPDX-License-Identifier: Apache-2.0
"""`make bench-udf`: UDFs on a pool against stock PySpark in each of its configurations.

Each variant is a Spark of its own (local[2], noop sink), kept alive and asked in turn, so that all of them meet the
same noise and none runs on another's compiled code. Warm-up runs are not counted. CPU seconds are those of every
process: the driver, its JVM, Spark's Python workers and the pool, ended children included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
import pyspark

from tests.bench.cases import CASES, Case, scaled, write_data
from tests.bench.chart import Ratios, draw
from tests.bench.variants import VARIANTS, Variant
from tests.support.cpu import cpu_seconds
from tests.support.paths import BUILD, PYTHON, REPOSITORY, connector_jar, use_connector_jar
from tests.support.pool import LocalPool

_DIRECTORY = BUILD / "bench"
_ANSWER_TIMEOUT_SECONDS = 300
_WORKERS = 2
# Stock 4.3 with pipelining now and then hands a task a worker whose channel is closed already.
_TRIES = 5


@dataclass
class Record:
    """What one variant needed for one case, repetition by repetition."""

    case: str
    variant: str
    rows: int
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)


class Driver:
    """A Spark in a process of its own, and whose CPU time counts for it."""

    def __init__(self, variant: Variant, endpoint: str, pool_pid: int | None):
        self.variant = variant
        command = [str(PYTHON), "-m", "tests.bench.driver", variant.name, endpoint, str(_DIRECTORY / "data")]
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._roots = [self._process.pid, *([pool_pid] if pool_pid is not None else [])]
        self._answer()

    def run(self, case: Case, rows: int) -> tuple[float, float]:
        """Wall and CPU seconds of one run."""
        assert self._process.stdin is not None
        for _ in range(_TRIES):
            before = cpu_seconds(self._roots)
            self._process.stdin.write(json.dumps({"case": case.name, "rows": rows}) + "\n")
            answer = self._answer()
            if "wall_s" in answer:
                return float(answer["wall_s"]), cpu_seconds(self._roots) - before
            print(f"{self.variant.name} failed on {case.name} and runs again: {answer['failed']}", flush=True)
        raise SystemExit(f"{self.variant.name} failed on {case.name} {_TRIES} times")

    def stop(self) -> None:
        """End the process with its JVM."""
        assert self._process.stdin is not None
        family = psutil.Process(self._process.pid).children(recursive=True) if self._process.poll() is None else []
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def _answer(self) -> dict[str, str]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _ANSWER_TIMEOUT_SECONDS)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise SystemExit(f"{self.variant.name} gave no answer: see above")
        return dict(json.loads(line))


def main() -> int:
    """Measure, write build/bench/udf.json and the chart, print a table."""
    options = _options()
    use_connector_jar(options.jar)
    connector_jar()
    _DIRECTORY.mkdir(parents=True, exist_ok=True)
    cases = [case for case in CASES if not options.cases or case.name in options.cases]
    variants = [variant for variant in VARIANTS if variant.name in options.variants]
    write_data(_DIRECTORY / "data", cases, options.rows_scale)
    records: list[Record] = []
    with _drivers(variants) as drivers:
        for case in cases:
            records += _measure(case, drivers, scaled(case, options.rows_scale), options)
            target = _DIRECTORY / "udf.json"
            target.write_text(json.dumps([asdict(record) for record in records], indent=1) + "\n")
    _report(cases, records)
    return 0


def _options() -> argparse.Namespace:
    names = [variant.name for variant in VARIANTS]
    parser = argparse.ArgumentParser(prog="bench-udf", description=__doc__)
    parser.add_argument("--jar", type=Path, help="the connector (default: where `make connector` puts it)")
    parser.add_argument("--cases", nargs="*", choices=[case.name for case in CASES], help="only these")
    parser.add_argument("--variants", nargs="*", choices=names, default=names, help="only these")
    parser.add_argument("--repeat", type=int, default=5, help="counted runs of each case and variant (%(default)s)")
    parser.add_argument("--warm-up", type=int, default=3, help="runs before those (%(default)s)")
    parser.add_argument("--rows-scale", type=float, default=1.0, help="multiplies every number of rows")
    return parser.parse_args()


@contextlib.contextmanager
def _drivers(variants: Sequence[Variant]) -> Iterator[list[Driver]]:
    with contextlib.ExitStack() as stack:
        pool = None
        if any(variant.connector for variant in variants):
            pool = stack.enter_context(LocalPool(workers=_WORKERS))
        drivers = []
        for variant in variants:
            endpoint, pid = "", None
            if variant.connector and pool is not None:
                endpoint = pool.unix_endpoint if variant.name.endswith("-unix") else pool.tcp_endpoint
                pid = pool.pid
            drivers.append(Driver(variant, endpoint, pid))
            stack.callback(drivers[-1].stop)
            print(f"started {variant.name}", flush=True)
        yield drivers


def _measure(case: Case, drivers: Sequence[Driver], rows: int, options: argparse.Namespace) -> list[Record]:
    records = {driver.variant.name: Record(case.name, driver.variant.name, rows) for driver in drivers}
    started = time.monotonic()
    for _ in range(options.warm_up):
        for driver in drivers:
            driver.run(case, rows)
    for number in range(options.repeat):
        # Another one is first in each round, so that none always follows the same neighbour.
        for driver in [*drivers[number % len(drivers) :], *drivers[: number % len(drivers)]]:
            wall, cpu = driver.run(case, rows)
            records[driver.variant.name].wall_s.append(round(wall, 4))
            records[driver.variant.name].cpu_s.append(round(cpu, 4))
    print(f"measured {case.name}: {rows:,} rows, {time.monotonic() - started:.0f} s", flush=True)
    return list(records.values())


def _report(cases: Sequence[Case], records: Sequence[Record]) -> None:
    ratios = []
    header = f"{'case':15}{'no UDF':>8}{'best stock':>12}  {'which':25}{'updraft':>9}{'unix':>8}{'speed':>8}{'CPU':>7}"
    print(f"\nmedian seconds\n{header}")
    for case in cases:
        mine = {record.variant: record for record in records if record.case == case.name}
        stock = [mine[variant.name] for variant in VARIANTS if variant.is_stock and variant.name in mine]
        if not stock:
            continue
        best = min(stock, key=lambda record: statistics.median(record.wall_s))
        ratio = _ratios(case, best, mine.get("updraft"), mine.get("updraft-unix"))
        print(
            f"{case.name:15}{_median(mine.get('no-udf')):>8}{_median(best):>12}  {best.variant:25}"
            f"{_median(mine.get('updraft')):>9}{_median(mine.get('updraft-unix')):>8}"
            + (f"{ratio.speed:>7.2f}x{ratio.cpu:>7.2f}" if ratio is not None else "")
        )
        if ratio is not None:
            ratios.append(ratio)
    if ratios:
        caption = (
            f"PySpark {pyspark.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, local[2], "
            f"pool of {_WORKERS} workers on the same machine, noop sink, medians. The best stock is chosen per case."
        )
        for path in draw(ratios, caption, _DIRECTORY / "udf"):
            print(path.relative_to(REPOSITORY))


def _ratios(case: Case, best: Record, tcp: Record | None, unix: Record | None) -> Ratios | None:
    if tcp is None:
        return None

    def speed(record: Record) -> float:
        return statistics.median(best.wall_s) / statistics.median(record.wall_s)

    def cpu(record: Record) -> float:
        return statistics.median(record.cpu_s) / statistics.median(best.cpu_s)

    with_unix = (speed(unix), cpu(unix)) if unix is not None else (None, None)
    return Ratios(case.title, speed(tcp), cpu(tcp), *with_unix)


def _median(record: Record | None) -> str:
    return f"{statistics.median(record.wall_s):.3f}" if record is not None else "-"


if __name__ == "__main__":
    sys.exit(main())
