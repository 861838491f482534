# SPDX-License-Identifier: Apache-2.0
"""Application that runs scenarios one after the other, and writes a line of JSON for each outcome.

One application runs on stock, and one with Updraft.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

from tests.support.spark import cancel_jobs, local_spark
from tests.workers.python_watch import PythonWatch
from tests.workers.scenario import SCENARIOS, Scenario, outcome_of
from tests.workers.scenarios import import_all

_CANCEL_SECONDS = 20


class Applications:
    """Spark of a side. A scenario that hangs costs the Spark that it hangs in, and the next one gets a new one."""

    def __init__(self, confs: dict[str, str], python: Path, jar: str | None) -> None:
        self._confs = confs
        self._python = python
        self._jar = jar
        self._spark: SparkSession | None = None

    def spark(self) -> SparkSession:
        """Return the running Spark, or start one."""
        if self._spark is None:
            connector = self._jar is not None
            self._spark = local_spark("workers", connector=connector, conf=self._confs, python=self._python)
            self._spark.sparkContext.setLogLevel("ERROR")
        return self._spark

    def stop(self) -> None:
        """Stop the running Spark, if there is one."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None


def run(scenario: Scenario, applications: Applications) -> dict[str, Any]:
    """Return the outcome of a scenario, as `value`, or the `error` with which it ended."""
    spark = applications.spark()
    found: dict[str, Any] = {}

    def body() -> None:
        try:
            found["value"] = outcome_of(scenario.run(spark))
        except BaseException:
            found["error"] = traceback.format_exc()

    thread = threading.Thread(target=inheritable_thread_target(spark)(body), daemon=True)
    thread.start()
    thread.join(scenario.seconds)
    if not thread.is_alive():
        return found
    if not _ended(spark, thread):
        applications.stop()
    return {"error": f"not within {scenario.seconds} seconds"}


def _ended(spark: SparkSession, thread: threading.Thread) -> bool:
    """Cancel everything that runs, and return whether that has ended the scenario."""
    try:
        for query in spark.streams.active:
            query.stop()
        cancel_jobs(spark)
    except Exception:
        return False
    thread.join(_CANCEL_SECONDS)
    return not thread.is_alive()


def main(request: dict[str, Any], results: TextIO) -> None:
    """Run the scenarios that the request names."""
    import_all()
    applications = Applications(request["confs"], Path(request["python"]), request["jar"])
    with PythonWatch(os.getpid()) as watch:
        for name in request["names"]:
            started = time.monotonic()
            found = run(SCENARIOS[name], applications)
            outcome = {"name": name, **found, "pythons": watch.seen(), "seconds": round(time.monotonic() - started, 2)}
            results.write(json.dumps(outcome) + "\n")
            results.flush()
    applications.stop()


if __name__ == "__main__":
    with Path(sys.argv[2]).open("w") as file:
        main(json.loads(Path(sys.argv[1]).read_text()), file)
