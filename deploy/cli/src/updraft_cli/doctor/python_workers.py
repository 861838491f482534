# SPDX-License-Identifier: Apache-2.0
"""Check, with a small Spark application, that Spark's Python workers run on the pool."""

import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import javaproperties

from updraft.spark.jars import WORKER_PLUGIN
from updraft_cli.doctor.driver import Driver, interpreter_of
from updraft_cli.doctor.finding import Findings

# Run by its path, not imported: PySpark may be missing from this Python.
_APPLICATION = Path(__file__).with_name("kinds.py")
_PLUGINS, _PYTHON, _MASTER = "spark.plugins", "spark.pyspark.python", "spark.master"
_STATE = "spark.updraft.udf.unsupported"
# Long enough for executors to start; each kind then takes seconds.
_SECONDS = 900
_LATE = f"the application did not end within {_SECONDS} seconds"
_FAILURE = re.compile(r"(?:Exception in thread \S+ |Error: )(.+)")
# PySpark's error if the JVM did not start; its log has the reason.
_NO_JVM = "JAVA_GATEWAY_EXITED"
_GUIDE = 'see "If something is wrong" in docs/guides/executors-without-python.md'
# These settings override the conf of the job.
_CONFS = {
    # The application is its own driver.
    "spark.submit.deployMode": "client",
    # Fail at once instead of retrying a task that a wrong setting breaks.
    "spark.task.maxFailures": "1",
    # Each partition of a state needs a worker.
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.showConsoleProgress": "false",
}


def check_python_workers(confs: Mapping[str, str], driver: Driver, interpreter: str, findings: Findings) -> None:
    """Run the application with a job's confs, in the driver's Python, and add a finding for each kind."""
    plugins = [name.strip() for name in confs.get(_PLUGINS, "").split(",")]
    if WORKER_PLUGIN not in plugins:
        advice = "add it; `python -m updraft.spark --python-workers` prints all settings"
        findings.error("plugin", f"{_PLUGINS} does not name {WORKER_PLUGIN}", advice)
    elif driver.pyspark.startswith("3."):
        findings.error("plugin", f"it does not work with Spark {driver.pyspark}", "use Spark 4.0 or newer")
    else:
        output, reason = _run(confs, driver, interpreter)
        _add_all(_reported(output.splitlines()), reason, confs, findings)


def _add_all(
    reported: Mapping[str, tuple[str, str]], reason: str, confs: Mapping[str, str], findings: Findings
) -> None:
    if not reported:
        findings.error("application", reason, "it needs PySpark in the driver's Python: give it with --python")
    for kind, (outcome, detail) in reported.items():
        match outcome:
            case "ok" if kind == "master" and _MASTER not in confs:
                found = f"ran on {detail}, because the conf names no {_MASTER}"
                findings.warning(kind, found, f"add --conf {_MASTER}=..., so that the job's executors are checked")
            case "ok":
                findings.ok(kind, detail or "ran on the pool")
            case "skipped":
                findings.warning(kind, f"not checked: {detail}", "change this for the check, or leave this kind out")
            case "elsewhere":
                advice = f"set {_PYTHON} to updraft-python; applications that `python` starts read PYSPARK_PYTHON"
                findings.error(kind, detail, advice)
            case "begun":
                findings.error(kind, f"it did not end: {reason}", "look for free executors, and at the pool's queue")
            case _:
                advice = f"set {_STATE} to local" if "state store" in detail else _GUIDE
                findings.error(kind, reason if _NO_JVM in detail else detail, advice)


def _run(confs: Mapping[str, str], driver: Driver, interpreter: str) -> tuple[str, str]:
    """Return the application's output, and why it ended early if it did."""
    environment = dict(os.environ)
    if python := confs.get(_PYTHON):
        # Applications started by `python` ignore the conf and read this variable.
        environment["PYSPARK_PYTHON"] = python
    home = environment.get("SPARK_HOME")
    if home and not driver.pyspark:
        # Only spark-submit finds this PySpark by itself.
        paths = [Path(home, "python"), *Path(home, "python/lib").glob("py4j-*.zip")]
        environment["PYTHONPATH"] = os.pathsep.join([*map(str, paths), environment.get("PYTHONPATH", "")])
    command = [interpreter_of(confs, interpreter), "-P", str(_APPLICATION)]
    # A file keeps tokens out of the arguments, which all users of the machine can read.
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        javaproperties.dump({**confs, **_CONFS}, file, timestamp=False)
        file.flush()
        environment["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {shlex.quote(file.name)} pyspark-shell"
        try:
            ran = subprocess.run(  # noqa: S603 - Spark itself would run it
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_SECONDS,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            output = late.stdout or ""
            return output.decode(errors="replace") if isinstance(output, bytes) else output, _LATE
        except OSError as error:
            return "", f"cannot run {command[0]}: {error.strerror}"
    lines = [line for line in ran.stderr.splitlines() if line.strip()]
    told = [found[1] for line in lines if (found := _FAILURE.match(line))] or lines[-1:]
    return ran.stdout, told[0] if told else f"the application ended with status {ran.returncode}"


def _reported(lines: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the last outcome of each kind, with its detail."""
    found = {}
    for line in lines:
        try:
            kind, outcome, detail = json.loads(line)
        except (ValueError, TypeError):
            continue
        found[kind] = outcome, detail
    return found
