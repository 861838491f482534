# SPDX-License-Identifier: Apache-2.0
"""Application that runs scenarios one after the other, and writes each outcome as a line of JSON.

If a scenario still hangs after its jobs were cancelled, the application ends, because the scenario's tasks occupy the
executor's slots.
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


class HangingError(Exception):
    """Raised if a scenario still runs after its jobs were cancelled."""


def run(scenario: Scenario, spark: SparkSession) -> dict[str, Any]:
    """Return the outcome of a scenario as `value`, or the scenario's `error`; raise HangingError."""
    found: dict[str, Any] = {}

    def body() -> None:
        # This call makes the session the active session in the JVM's thread.
        spark.createDataFrame([(0,)], "x int")
        try:
            found["value"] = outcome_of(scenario.run(spark))
        except BaseException:
            found["error"] = traceback.format_exc()

    thread = threading.Thread(target=inheritable_thread_target(spark)(body), daemon=True)
    thread.start()
    thread.join(scenario.seconds)
    if not thread.is_alive():
        return found
    _cancel(spark, thread)
    return {"error": f"not within {scenario.seconds} seconds"}


def _cancel(spark: SparkSession, thread: threading.Thread) -> None:
    try:
        for query in spark.streams.active:
            query.stop()
        cancel_jobs(spark, timeout_seconds=_CANCEL_SECONDS)
    except Exception as error:
        raise HangingError(str(error)) from error
    thread.join(_CANCEL_SECONDS)
    if thread.is_alive():
        raise HangingError("its jobs have ended")


def _write(results: TextIO, line: dict[str, Any]) -> None:
    results.write(json.dumps(line) + "\n")
    results.flush()


def main(request: dict[str, Any], results: TextIO) -> None:
    """Run the scenarios that the request names."""
    import_all()
    spark = local_spark(
        "workers", connector=request["connector"], conf=request["confs"], python=Path(request["python"])
    )
    spark.sparkContext.setLogLevel("WARN")
    with PythonWatch(os.getpid()) as watch:
        for name in request["names"]:
            started = time.monotonic()
            hangs = False
            # If the JVM ends this process, this line remains the scenario's outcome.
            _write(results, {"name": name, "error": "the application ended in this scenario", "pythons": []})
            try:
                found = run(SCENARIOS[name], spark)
            except HangingError as error:
                found = {"error": f"not within {SCENARIOS[name].seconds} seconds, nor cancelled: {error}"}
                hangs = True
            outcome = {"name": name, **found, "pythons": watch.seen(), "seconds": round(time.monotonic() - started, 2)}
            _write(results, outcome)
            if hangs:
                # Do not call spark.stop(), which would wait for the tasks.
                os._exit(1)
    spark.stop()


if __name__ == "__main__":
    with Path(sys.argv[2]).open("a") as file:
        main(json.loads(Path(sys.argv[1]).read_text()), file)
