# SPDX-License-Identifier: Apache-2.0
"""Both runs of the scenarios: on stock, and with every Python worker of Spark on a pool."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.paths import PYTHON, REPOSITORY, connector_jar
from tests.support.spark import ENDPOINT, SHORT_LIVED_JVM
from tests.workers.scenario import SCENARIOS

LAUNCHER = REPOSITORY / "spark-connector/python/src/updraft_spark/bin/updraft-python"
_PLUGIN = "io.updraft.spark.WorkerPlugin"
_START_SECONDS = 120
CONFS = {
    # A task may fail once.
    "spark.master": "local[2,2]",
    "spark.executorEnv.MODEL_SIZE": "large",
    "spark.files.overwrite": "true",
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
        value: what the scenario returned; None if it failed.
        error: what it failed with; None if it did not.
        pythons: command lines of the Python processes that Spark has started.
    """

    value: Any
    error: str | None
    pythons: Sequence[str]


@dataclass(frozen=True)
class Side:
    """Application of one side, which runs in a directory of its own."""

    directory: Path
    python: Path
    jar: str | None
    confs: Mapping[str, str]

    def start(self, names: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start to run the scenarios."""
        self.directory.mkdir()
        request = {"names": names, "python": str(self.python), "jar": self.jar, "confs": {**CONFS, **self.confs}}
        self._request.write_text(json.dumps(request))
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [PYTHON, "-m", "tests.workers.application", self._request, self._results],
                cwd=REPOSITORY,
                env={**os.environ, "TMPDIR": str(self.directory), "SPARK_SUBMIT_OPTS": SHORT_LIVED_JVM},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def finish(self, application: subprocess.Popen[bytes], names: Sequence[str]) -> dict[str, Outcome]:
        """Wait for the application and return its outcomes. One that hangs is killed after the scenarios' time."""
        try:
            application.wait(_START_SECONDS + sum(SCENARIOS[name].seconds for name in names))
        except subprocess.TimeoutExpired:
            application.kill()
            application.wait()
        lines = self._results.read_text().splitlines() if self._results.exists() else []
        found = {
            line["name"]: Outcome(line.get("value"), line.get("error"), line["pythons"])
            for line in map(json.loads, lines)
        }
        missing = Outcome(None, f"the application ended before this scenario; {self._log} has its output", ())
        return {name: found.get(name, missing) for name in names}

    @property
    def _request(self) -> Path:
        return self.directory / "request.json"

    @property
    def _results(self) -> Path:
        return self.directory / "results.jsonl"

    @property
    def _log(self) -> Path:
        return self.directory / "output.log"


def stock_side(directory: Path) -> Side:
    """Return the side of stock PySpark."""
    return Side(directory, PYTHON, None, {})


def updraft_side(directory: Path, endpoint: str) -> Side:
    """Return the side whose workers run on the pool at `endpoint`."""
    confs = {ENDPOINT: endpoint, "spark.plugins": _PLUGIN}
    return Side(directory, LAUNCHER, str(connector_jar()), confs)
