# SPDX-License-Identifier: Apache-2.0
"""Both runs of the scenarios: on stock, and with all of Spark's Python workers on a pool."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.paths import PYTHON, REPOSITORY
from tests.support.spark import ENDPOINT, SHORT_LIVED_JVM
from tests.workers import no_python
from tests.workers.scenario import SCENARIOS

LAUNCHER = REPOSITORY / "spark-connector/python/src/updraft_spark/bin/updraft-python"
PLUGIN = "io.updraft.spark.WorkerPlugin"
# Setting for a daemon that imports the workers' modules before it forks workers. Otherwise each dead worker costs
# seconds.
_DAEMON = "spark.python.daemon.module"
# Workers and driver need the same hash seed, because RDD.lookup hashes its key in the driver.
_VARIABLES = {"PYTHONHASHSEED": "0", "SPARK_SUBMIT_OPTS": SHORT_LIVED_JVM}
_START_SECONDS = 120
_LOG = "output.log"
CONFS = {
    "spark.master": "local[2,2]",
    "spark.executorEnv.MODEL_SIZE": "large",
    "spark.files.overwrite": "true",
    # If a barrier stage does not fit, Spark would retry for ten minutes.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "1",
    "spark.sql.session.timeZone": "America/Los_Angeles",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


@dataclass(frozen=True)
class Outcome:
    """Outcome of a scenario on one side.

    Attributes:
        value: outcome of the scenario; None if the scenario failed.
        error: error of the scenario; None if it succeeded.
        pythons: command lines of the Python processes that Spark has started.
    """

    value: Any
    error: str | None
    pythons: Sequence[str]


@dataclass(frozen=True)
class Side:
    """One side: its applications run one after the other, in the side's own directory."""

    directory: Path
    python: Path
    connector: bool
    confs: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, names: Sequence[str]) -> dict[str, Outcome]:
        """Run the scenarios. If an application ends early, start another application for the remaining scenarios."""
        self.directory.mkdir()
        while left := [name for name in names if name not in self._outcomes()]:
            before = len(left)
            self._run_application(left)
            if sum(name not in self._outcomes() for name in names) == before:
                raise RuntimeError(f"an application did not start: {self._log.read_text()[-5000:]}")
        return self._outcomes()

    def _run_application(self, names: Sequence[str]) -> None:
        request = {
            "names": names,
            "python": str(self.python),
            "connector": self.connector,
            "confs": {**CONFS, "spark.local.dir": str(self.directory), **self.confs},
        }
        self._request.write_text(json.dumps(request))
        with self._log.open("ab") as log:
            application = subprocess.Popen(
                [PYTHON, "-m", "tests.workers.application", self._request, self._results],
                cwd=REPOSITORY,
                env={**os.environ, **_VARIABLES, **self.environment, "TMPDIR": str(self.directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            application.wait(_START_SECONDS + sum(SCENARIOS[name].seconds for name in names))
        except subprocess.TimeoutExpired:
            application.kill()
            application.wait()

    def _outcomes(self) -> dict[str, Outcome]:
        lines = self._results.read_text().splitlines() if self._results.exists() else []
        return {
            line["name"]: Outcome(line.get("value"), line.get("error"), line["pythons"])
            for line in map(json.loads, lines)
        }

    @property
    def _request(self) -> Path:
        return self.directory / "request.json"

    @property
    def _results(self) -> Path:
        return self.directory / "results.jsonl"

    @property
    def _log(self) -> Path:
        return self.directory / _LOG


def log_of_the_application() -> str:
    """Return the log of this side's application and its JVM. Call this in the application's process."""
    return Path(os.environ["TMPDIR"], _LOG).read_text(errors="replace")


def stock_side(directory: Path) -> Side:
    """Return the side of stock PySpark."""
    return Side(directory, PYTHON, False, {_DAEMON: "tests.e2e.warm_daemon"})


def updraft_side(directory: Path, endpoint: str) -> Side:
    """Return the side whose Python workers run on the pool at `endpoint`."""
    confs = {ENDPOINT: endpoint, "spark.plugins": PLUGIN}
    return Side(directory, LAUNCHER, True, confs, no_python.environment())
