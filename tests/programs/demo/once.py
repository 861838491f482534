# SPDX-License-Identifier: Apache-2.0
"""Demo job with a UDF that Updraft calls once for each distinct value of its argument."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame

from tests.programs.demo import terminal
from tests.support.plan_metrics import metrics_of
from tests.support.spark import runtime_confs

_SETTING = "spark.updraft.udf.callOncePerValue"


def show(query: Callable[[], DataFrame], answer: Sequence[object]) -> None:
    """Run the query on the session's pool with this setting, and print how often Updraft called the plain UDF."""
    terminal.heading(f"{_SETTING}=auto")
    what = "the same job, with maker() once for each manufacturer in a task"
    with runtime_confs(query().sparkSession, {_SETTING: "auto"}), terminal.working(what):
        started = time.monotonic()
        frame = query()
        same = [tuple(row) for row in frame.collect()] == answer
        seconds = time.monotonic() - started
    counts = metrics_of(frame, "FlightEvalPython")
    rows, calls = counts["pythonNumRowsReceived"], counts["updraftCalls"]
    terminal.line(f"{calls:,} calls of maker() for {rows:,} rows, {seconds:.1f} s")
    if not same:
        raise SystemExit(f"{_SETTING}=auto gave another answer")
