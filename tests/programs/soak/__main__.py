# SPDX-License-Identifier: Apache-2.0
"""`make soak`: Spark jobs of every kind, under which the soak kills a process every second and checks all rows.

The soak kills workers, zygotes, fronts, writers and executors. It restarts a pool or writer that has ended, as a
platform does, and reloads the functions of the pools every 15 seconds (SIGUSR2). With `--rolling`, the soak kills no
processes: it restarts two pools and two writers in turn, each pair behind one address, and no job may fail. Rows and
files contain their own origin, and the simulator's checker (tests/support/invariants.py) checks both. The exit status
is 1 if an invariant is violated, if memory, descriptors or disk usage grow, if some job never answered, or if some kind
of process was never killed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import grpc
import psutil
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.programs.soak.job import TENANT, Job
from tests.programs.soak.jobs import JOBS
from tests.programs.soak.kills import Kills, executors
from tests.programs.soak.services import Place, Platform
from tests.programs.soak.trend import Trend
from tests.support.flight import action, pool_status
from tests.support.invariants import Invariants
from tests.support.paths import use_connector_jar
from tests.support.pool import LocalPool
from tests.support.spark import ENABLED, ENDPOINT, SHORT_LIVED_JVM, local_spark
from tests.support.writer import LocalWriter
from tests.workers.sides import LAUNCHER, PLUGIN

_WORKERS = 2
_ROLL_EVERY_SECONDS = 5.0
# A zygote loads in less time than this, so most reloads finish; kills interrupt the other reloads.
_RELOAD_EVERY_SECONDS = 15.0
_QUOTA_BYTES = 256 << 20
# Within this time, services notice that the executors of the last job are gone.
_SETTLING_SECONDS = 60.0
# A job takes seconds, or a few minutes if its executors are killed repeatedly. A job that takes longer than this hangs.
_LONGEST_JOB_SECONDS = 900.0
# Spark retries tasks practically without a limit, because a task may meet one killed process after another.
_PATIENT = {
    "spark.task.maxFailures": "1000",
    "spark.stage.maxConsecutiveAttempts": "1000",
    "spark.deploy.maxExecutorRetries": "-1",
    # Fail instead of falling back, because a function in Spark's own workers would prove nothing.
    "spark.updraft.udf.unsupported": "fail",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    # transformWithState needs this state store.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A barrier stage waits until all executors are back, so let Spark check often.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
}


def main() -> int:
    """Run jobs until the time is over; return 1 if there was any violation."""
    options = _options()
    warnings.filterwarnings("ignore", module="pyspark")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    use_connector_jar(options.jar)
    # The path of a Unix socket has to be short, so do not use pytest's directory.
    directory = Path(tempfile.mkdtemp(prefix="soak-"))
    data, runtime = directory / "data", directory / "run"
    data.mkdir()
    runtime.mkdir()
    # This directory contains all files of the services, including files that killed processes leave behind. Spark's
    # files are elsewhere, because Spark keeps the work directory of every executor until the application ends.
    os.environ["TMPDIR"] = tempfile.tempdir = str(runtime)
    count = 2 if options.rolling else 1
    pools = Place(directory / "pool.sock", lambda: LocalPool(workers=_WORKERS), count)
    writers = Place(
        directory / "writer.sock", lambda: LocalWriter(data, arguments=["--quota-bytes", str(_QUOTA_BYTES)]), count
    )
    try:
        pools.start()
        writers.start()
        with _spark(options, pools, writers) as spark:
            return _Soak(options, pools, writers, spark, directory).run()
    finally:
        pools.stop()
        writers.stop()
        shutil.rmtree(directory, ignore_errors=True)


class _Soak:
    def __init__(
        self, options: argparse.Namespace, pools: Place, writers: Place, spark: SparkSession, directory: Path
    ) -> None:
        self._options = options
        self._pools, self._writers, self._spark, self._data = pools, writers, spark, directory / "data"
        self._driver = psutil.Process()
        self._kills = Kills(pools, writers, self._driver, options.seed)
        self._trend = Trend(lambda: [*pools.members(), *writers.members()], [directory])
        self._rows = dict.fromkeys(JOBS, 0)
        self._violations: list[str] = []
        self._invariants = Invariants(self._violations.append)
        self._done = dict.fromkeys(JOBS, 0)
        self._failed: list[str] = []

    def run(self) -> int:
        deadline = time.monotonic() + self._options.minutes * 60
        with contextlib.ExitStack() as stack:
            turns = {"samples": stack.enter_context(Platform(self._sample, 1.0))}
            turns["reloads"] = stack.enter_context(Platform(self._pools.reload, _RELOAD_EVERY_SECONDS))
            if self._options.rolling:
                turns["restarts"] = stack.enter_context(Platform(self._roll, _ROLL_EVERY_SECONDS))
            else:
                turns["starts"] = stack.enter_context(Platform(self._keep, 0.2))
                turns["kills"] = stack.enter_context(Platform(self._kills.kill_one, self._options.kill_every))
            for number, (name, job) in enumerate(itertools.cycle(JOBS.items())):
                if time.monotonic() > deadline:
                    break
                try:
                    with self._bounded(f"job {number}, {name},"):
                        self._rows[name] += job(Job(self._spark, number, self._data), self._invariants)
                    self._done[name] += 1
                # PySpark raises Py4J's own error for a collected Arrow table, and if no pool answers while PySpark
                # plans.
                except (PySparkException, Py4JJavaError) as error:
                    self._failed.append(f"{name}: {_reason(error)}")
                self._say(number + 1, deadline)
        self._settle()
        return self._report({name: turn.troubles for name, turn in turns.items() if turn.troubles})

    @contextlib.contextmanager
    def _bounded(self, what: str) -> Iterator[None]:
        """Cancel the job in this block if it takes too long, and report a violation."""
        began = time.monotonic()
        limit = threading.Timer(_LONGEST_JOB_SECONDS, self._spark.sparkContext.cancelAllJobs)
        limit.start()
        try:
            yield
        finally:
            limit.cancel()
            self._invariants.waited(what, time.monotonic() - began, _LONGEST_JOB_SECONDS)

    def _sample(self) -> None:
        self._trend.sample()
        for name, service in self._services():
            with contextlib.suppress(grpc.RpcError):
                if isinstance(service, LocalWriter):
                    status = _writer_status(service)
                    self._invariants.holds(name, status["peak_bytes"], status["quota_bytes"])

    def _settle(self) -> None:
        """Wait until every service is idle, and check that its counts are zero."""
        for name, service in self._services():
            counts: dict[str, float] = {"no answer": 1}
            until_seconds = time.monotonic() + _SETTLING_SECONDS
            while any(counts.values()) and time.monotonic() < until_seconds:
                time.sleep(0.5)
                # Restart services meanwhile: the kernel ends a service when the thread that has started the service
                # ends.
                self._keep()
                try:
                    counts = _left(service)
                except grpc.RpcError as error:
                    counts = {f"no answer: {error}": 1}
            self._invariants.settles(name, counts)

    def _services(self) -> Iterator[tuple[str, LocalPool | LocalWriter]]:
        for place in (self._pools, self._writers):
            for number, service in enumerate(place.services):
                yield f"{'pool' if isinstance(service, LocalPool) else 'writer'} {number}", service

    def _roll(self) -> None:
        self._pools.restart_in_turn()
        self._writers.restart_in_turn()

    def _keep(self) -> None:
        self._pools.start_what_has_ended()
        self._writers.start_what_has_ended()

    def _say(self, jobs: int, deadline: float) -> None:
        left = max(0, round(deadline - time.monotonic()))
        kills = sum(self._kills.by_victim.values())
        print(f"{left:5} s left, {jobs} jobs, {len(self._failed)} failed, {kills} kills", flush=True)

    def _report(self, troubles: dict[str, list[str]]) -> int:
        print(f"\n{'job':15}{'done':>6}{'rows':>12}")
        for name, rows in self._rows.items():
            print(f"{name:15}{self._done[name]:6}{rows:12,}")
        print(f"violations: {len(self._violations)}")
        for violation in self._violations[:20]:
            print(f"  {violation}")
        print(f"failed jobs: {len(self._failed)}")
        for failure in self._failed[:5]:
            print(f"  {failure}")
        print(f"killed: {dict(self._kills.by_victim)}, executors now: {len(executors(self._driver))}")
        print(f"started again: pools {self._pools.restarts}, writers {self._writers.restarts}")
        print(f"functions loaded again: {self._pools.reloads} times")
        for name in self._trend.samples:
            early, late = self._trend.quarters(name)
            print(f"{name:15}{early:10.1f} in the second quarter{late:10.1f} in the last")
        for name, reasons in troubles.items():
            print(f"trouble with {name}: {len(reasons)} times")
            print("\n".join(f"  {reason}" for reason in reasons[:5]))
        violations = violated(
            self._violations,
            unanswered=[name for name, done in self._done.items() if not done],
            growing=self._trend.growing(),
            troubles=troubles,
            failed_jobs=len(self._failed) if self._options.rolling else 0,
            never_killed=[] if self._options.rolling else self._kills.never(),
        )
        print(f"violated: {', '.join(violations)}" if violations else "every invariant held, and nothing grew")
        return 1 if violations else 0


def violated(
    violations: Sequence[str],
    *,
    unanswered: Iterable[str],
    growing: Iterable[str],
    troubles: Iterable[str],
    failed_jobs: int,
    never_killed: Iterable[str],
) -> list[str]:
    """Return the failures of a soak in words, or an empty list if the soak passed.

    Args:
        violations: Violated invariants of rows, files and memory.
        unanswered: Jobs that never answered.
        growing: Measurements that grew.
        troubles: Background threads that reported errors.
        failed_jobs: Number of jobs that failed but must not; 0 if the soak kills processes, because a job may then
            fail.
        never_killed: Kinds of processes that the soak should have killed but never did.
    """
    found = ["invariants"] if violations else []
    found += [f"no answer of {name}" for name in unanswered]
    found += growing
    # Ignore errors of "starts": a kill may hit a service while it starts, and the soak then starts the service again.
    found += sorted({*troubles} & {"kills", "restarts", "reloads"})
    found += ["failed jobs"] if failed_jobs else []
    return found + [f"no kill of a {victim}" for victim in never_killed]


@contextlib.contextmanager
def _spark(options: argparse.Namespace, pools: Place, writers: Place) -> Iterator[SparkSession]:
    conf = {
        **_PATIENT,
        "spark.master": options.master,
        # Kills are so frequent that executors spend most of their time starting.
        "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
        ENABLED: "true",
        "spark.updraft.udf.tenant": TENANT,
        ENDPOINT: pools.endpoint,
        "spark.updraft.write.endpoint": writers.endpoint,
        "spark.plugins": PLUGIN,
    }
    spark = local_spark("soak", connector=True, conf=conf, python=LAUNCHER)
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def _left(service: LocalPool | LocalWriter) -> dict[str, float]:
    """Return the counts of what a service has not released yet; all counts are zero if it is idle."""
    if isinstance(service, LocalWriter):
        status = _writer_status(service)
        return {name: status[name] for name in ("open_files", "held_bytes", "reservations", "batches_waiting")}
    pool = pool_status(_address(service))
    return {
        "busy": pool.workers_busy,
        "waiting": pool.exchanges_waiting,
        "missing": max(0, _WORKERS - pool.workers_idle),
    }


def _writer_status(writer: LocalWriter) -> dict[str, float]:
    return dict(json.loads(action(_address(writer), "updraft.writer_status")))


def _address(service: LocalPool | LocalWriter) -> str:
    # The process that replaces a killed process listens on another TCP port.
    return f"unix:{service.unix_socket}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long (10)")
    parser.add_argument("--kill-every", type=float, default=1.0, help="seconds; more on a slow machine (1)")
    parser.add_argument("--rolling", action="store_true", help="restart pools and writers in turn; kill nothing")
    parser.add_argument("--master", default="local-cluster[2,1,512]", help="of Spark (local-cluster[2,1,512])")
    parser.add_argument("--seed", type=int, default=0, help="of the order of kills (0)")
    parser.add_argument("--jar", type=Path, help="the connector (default: where `make connector` puts it)")
    return parser.parse_args()


def _reason(error: PySparkException | Py4JJavaError) -> str:
    """Return the first line of the error, or of its cause in the JVM."""
    text = str(error)
    _, _, caused = text.partition("Caused by: ")
    return (caused or text).splitlines()[0][:300]


if __name__ == "__main__":
    sys.exit(main())
