# SPDX-License-Identifier: Apache-2.0
"""Check, with a small Spark application, that Spark's Python workers run on the pool."""

import json
import os
import re
import secrets
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import javaproperties

from updraft.spark.jars import WORKER_PLUGIN
from updraft_cli.doctor.driver import Driver, interpreter_of
from updraft_cli.doctor.finding import Findings

_PLUGINS, _PYTHON, _MASTER = "spark.plugins", "spark.pyspark.python", "spark.master"
_STATE = "spark.updraft.udf.unsupported"
_POLL_SECONDS = 0.1
_FAILURE = re.compile(r"(?:Exception in thread \S+ |Error: )(.+)")
# PySpark's error code if the JVM did not start; the JVM's log has the reason.
_NO_JVM = "JAVA_GATEWAY_EXITED"
_WAITING = "look for free executors, and at the pool's queue"
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
    # The application starts a Spark Connect server. Only its own client may use it.
    "spark.connect.grpc.binding.address": "localhost",
    "spark.connect.grpc.binding.port": "0",
}
_TOKEN_OF_CONNECT = "spark.connect.authenticate.token"  # noqa: S105 - the name of the setting


@dataclass(frozen=True)
class Application:
    """Spark application that tries the kinds.

    Attributes:
        path: script for the driver's Python. This process does not import it, because its own Python may lack PySpark.
        longest_seconds: time after which the doctor ends the application. Each kind has a shorter limit
            (`trial.Limits`), so an application takes this long only if Spark does not start.
        end_seconds: time for Spark's JVM to end before it is killed.
    """

    path: Path
    longest_seconds: float = 1500
    end_seconds: float = 15


_APPLICATION = Application(Path(__file__).with_name("kinds.py"))


def check_python_workers(
    confs: Mapping[str, str],
    driver: Driver,
    interpreter: str,
    findings: Findings,
    application: Application = _APPLICATION,
) -> None:
    """Run the application with a job's confs, in the driver's Python, and add a finding for each kind."""
    plugins = [name.strip() for name in confs.get(_PLUGINS, "").split(",")]
    if WORKER_PLUGIN not in plugins:
        advice = "add it; `python -m updraft.spark --python-workers` prints all settings"
        findings.error("plugin", f"{_PLUGINS} does not name {WORKER_PLUGIN}", advice)
    elif driver.pyspark.startswith("3."):
        findings.error("plugin", f"it does not work with Spark {driver.pyspark}", "use Spark 4.0 or newer")
    else:
        output, reason = _run(confs, driver, interpreter, application)
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
                findings.error(kind, f"it did not end: {reason}", _WAITING)
            case "late":
                findings.error(kind, detail, _WAITING)
            case _:
                advice = f"set {_STATE} to local" if "state store" in detail else _GUIDE
                findings.error(kind, reason if _NO_JVM in detail else detail, advice)


def _run(confs: Mapping[str, str], driver: Driver, interpreter: str, application: Application) -> tuple[str, str]:
    """Return the application's output, and the reason if it ended early."""
    environment = dict(os.environ)
    if python := confs.get(_PYTHON):
        # Applications started by `python` ignore the conf and read this variable.
        environment["PYSPARK_PYTHON"] = python
    home = environment.get("SPARK_HOME")
    if home and not driver.pyspark:
        # Add the PySpark of SPARK_HOME, which only spark-submit would find without this.
        paths = [Path(home, "python"), *Path(home, "python/lib").glob("py4j-*.zip")]
        environment["PYTHONPATH"] = os.pathsep.join([*map(str, paths), environment.get("PYTHONPATH", "")])
    command = [interpreter_of(confs, interpreter), "-P", str(application.path)]
    # Pass the confs in a file, because all users of the machine can read arguments, and confs may contain tokens.
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        everything = {**confs, **_CONFS, _TOKEN_OF_CONNECT: secrets.token_urlsafe()}
        javaproperties.dump(everything, file, timestamp=False)
        file.flush()
        environment["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {shlex.quote(file.name)} pyspark-shell"
        try:
            return _outputs(command, environment, application)
        except OSError as error:
            return "", f"cannot run {command[0]}: {error.strerror}"


def _outputs(command: Sequence[str], environment: Mapping[str, str], application: Application) -> tuple[str, str]:
    # Use files instead of pipes, because a pipe stays open until a JVM that is left running ends.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as log:
        # Start a new session and process group, so that a signal to the group reaches the JVM too.
        process = subprocess.Popen(  # noqa: S603 - Spark itself would run it
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=log, env=environment, start_new_session=True
        )
        reason = ""
        try:
            process.wait(application.longest_seconds)
        except subprocess.TimeoutExpired:
            reason = f"the application did not end within {application.longest_seconds:g} seconds"
        finally:
            _end(process, application.end_seconds)
        lines = [line for line in _text(log).splitlines() if line.strip()]
        told = [found[1] for line in lines if (found := _FAILURE.match(line))] or lines[-1:]
        told = [reason] if reason else told
        return _text(output), told[0] if told else f"the application ended with status {process.returncode}"


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """End the application's process, and its JVM if that is still running."""
    deadline = time.monotonic() + seconds
    try:
        os.killpg(process.pid, signal.SIGTERM)
        # Poll the process group, which exists while the JVM runs: only the JVM's parent could wait for the JVM.
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(_POLL_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


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
