# SPDX-License-Identifier: Apache-2.0
"""End of the application that `updraft doctor --python-workers` runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.marked import MARK, marked
from tests.support.waiting import until

from updraft.spark.jars import WORKER_PLUGIN
from updraft_cli.doctor.driver import Driver
from updraft_cli.doctor.finding import Finding, Findings
from updraft_cli.doctor.python_workers import Application, check_python_workers

_LONG_SECONDS = 60
# Program that, like a hanging JVM, starts a process that ignores SIGTERM.
_START = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "infinity"])
print('["RDD", "begun", ""]', flush=True)
"""


def _findings(application: Application) -> Sequence[Finding]:
    findings = Findings("workers")
    driver = Driver(python="3.11", pyspark="4.3.0")
    check_python_workers({"spark.plugins": WORKER_PLUGIN}, driver, sys.executable, findings, application)
    return findings.all


@pytest.mark.parametrize(
    ("goes_on", "longest_seconds", "reason"),
    [
        ("", _LONG_SECONDS, "the application ended with status 0"),
        ("time.sleep(3600)", 3, "the application did not end within 3 seconds"),
    ],
)
def test_a_jvm_that_hangs_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: str, longest_seconds: float, reason: str
) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    script = tmp_path / "application.py"
    script.write_text(_START + goes_on)
    (found,) = _findings(Application(script, longest_seconds, end_seconds=0.5))
    # On a slow machine, the program may not have printed anything within 3 seconds.
    assert (found.check, found.found) in {("RDD", f"it did not end: {reason}"), ("application", reason)}
    until("no process is left", lambda: not marked(str(tmp_path)))
