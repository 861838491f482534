# SPDX-License-Identifier: Apache-2.0
"""Trial of each kind of Python worker in a Spark application, with time limits for each kind and for stopping Spark.

`kinds.py` loads this file by its path, in a Python that may lack everything but PySpark.
"""

import contextlib
import json
import re
import subprocess
import sys
import threading
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Kinds = Mapping[str, Callable[..., None]]
"""Functions by kind. Each takes a Spark session; functions for streams also take the path of a checkpoint."""

_RECURSIVELY = True
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
_ELSEWHERE = re.compile(r"RuntimeError: (the code ran in .+ on \S+ instead of on a pool)")
# Patterns of the lines that give the reason, the most specific first. Spark puts stack traces around these lines.
_REASONS = (
    re.compile(r"The worker on the pool failed: .*"),
    re.compile(r"updraft-python: .*"),
    re.compile(r"Cannot run program .*"),
    re.compile(r"(?<=Caused by: ).*"),
)


@dataclass(frozen=True)
class Limits:
    """Longest waits of the application.

    Attributes:
        first_seconds: wait for each kind while no kind has been late: executors may have to start.
        later_seconds: wait for each kind after one was late: the same cause may delay all later kinds.
        end_seconds: wait for a cancelled kind to end, for Spark to stop, and for its JVM to end.
    """

    first_seconds: float = 180
    later_seconds: float = 60
    end_seconds: float = 15


class SkippedError(Exception):
    """Raised when a kind cannot be tried; the message is the reason."""


class Trial:
    """Trial of kinds, one after another, each in a separate thread: a planner that hangs cannot be stopped."""

    def __init__(self, spark: Any, limits: Limits) -> None:
        self._spark = spark
        self._limits = limits
        self._seconds = limits.first_seconds
        # Read the confs now, because after a kind has hung, the JVM may no longer answer.
        self._is_local = spark.sparkContext.master.startswith("local")
        self._is_dynamic = spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true" and not self._is_local
        self._checkpoints = spark.conf.get(_CHECKPOINTS, None)

    def run(self, batch_kinds: Kinds, streaming_kinds: Kinds, directory: str) -> None:
        """Report an outcome for each kind. Without a setting for checkpoints, a local Spark uses `directory`."""
        for kind, run in batch_kinds.items():
            if kind == "barrier stage" and self._is_dynamic:
                report(kind, "skipped", "Spark runs no barrier stages with dynamic allocation")
            else:
                self._try(kind, run)
        shared = self._checkpoints or (Path(directory).as_uri() if self._is_local else None)
        if shared is None:
            for kind in streaming_kinds:
                report(kind, "skipped", f"{_CHECKPOINTS} is not set")
            return
        checkpoints = f"{shared}/updraft-doctor-{uuid.uuid4()}"
        for number, (kind, run) in enumerate(streaming_kinds.items()):
            self._try(kind, run, f"{checkpoints}/{number}")
        self._delete(checkpoints)

    def _try(self, kind: str, run: Callable[..., None], *arguments: str) -> None:
        report(kind, "begun")
        outcomes: list[tuple[str, str]] = []
        tried = _started(lambda: outcomes.append(_outcome(_run, run, self._spark, *arguments)))
        tried.join(self._seconds)
        if outcomes:
            report(kind, *outcomes[0])
            return
        report(kind, "late", f"it did not end within {self._seconds:g} seconds")
        self._seconds = self._limits.later_seconds
        _started(self._cancel).join(self._limits.end_seconds)
        # Wait until the late kind has ended, because the next kind may need the late kind's executors and workers.
        tried.join(self._limits.end_seconds)

    def _cancel(self) -> None:
        self._spark.sparkContext.cancelAllJobs()
        for query in self._spark.streams.active:
            query.stop()

    def _delete(self, directory: str) -> None:
        outcomes: list[tuple[str, str]] = []
        _started(lambda: outcomes.append(_outcome(_delete, self._spark, directory))).join(self._limits.end_seconds)
        outcome, detail = outcomes[0] if outcomes else ("failed", "the file system does not answer")
        if outcome != "ok":
            report("checkpoints", "failed", f"cannot delete {directory}: {detail}")


def stop(spark: Any, limits: Limits) -> None:
    """Stop Spark and wait for its JVM, with a time limit. The doctor kills a JVM that keeps running."""
    _started(spark.stop).join(limits.end_seconds)
    jvm = spark.sparkContext._gateway.proc
    # The JVM exits when its standard input is closed.
    jvm.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        jvm.wait(limits.end_seconds)


def report(subject: str, outcome: str, detail: str = "") -> None:
    """Print a line for the doctor."""
    sys.stdout.write(json.dumps([subject, outcome, detail]) + "\n")
    sys.stdout.flush()


def reason(error: Exception) -> str:
    """Return the line of an error that gives the reason."""
    text = str(error)
    found = next((found for pattern in _REASONS if (found := pattern.findall(text))), None)
    lines = [line for line in text.splitlines() if line.strip()]
    return found[-1] if found else lines[0] if lines else type(error).__name__


def _started(run: Callable[[], None]) -> threading.Thread:
    """Call `run` in a daemon thread, which does not keep this process from exiting."""
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def _outcome(run: Callable[..., None], *arguments: Any) -> tuple[str, str]:
    try:
        run(*arguments)
    except SkippedError as error:
        return "skipped", str(error)
    except Exception as error:
        found = _ELSEWHERE.search(traceback.format_exc())
        return ("elsewhere", found[1]) if found else ("failed", reason(error))
    return "ok", ""


def _run(run: Callable[..., None], spark: Any, *arguments: str) -> None:
    # This call makes `spark` the thread's active session, in which Spark looks for data sources.
    spark.createDataFrame([(0,)], "n int")
    run(spark, *arguments)


def _delete(spark: Any, directory: str) -> None:
    context = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(directory)
    path.getFileSystem(context._jsc.hadoopConfiguration()).delete(path, _RECURSIVELY)
