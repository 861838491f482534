# SPDX-License-Identifier: Apache-2.0
"""Checks whether each kind of Python worker that Spark starts runs on the pool, by a small Spark application."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from updraft.spark.jars import WORKER_PLUGIN
from updraft_cli.doctor.driver import interpreter_of
from updraft_cli.doctor.finding import Findings

KINDS = (
    "RDD",
    "barrier stage",
    "function",
    "analyze",
    "data source",
    "data sink",
    "streaming source",
    "applyInPandasWithState",
    "transformWithState",
)
"""Kinds of workers in the order of the checks, as `updraft_cli.doctor.kinds` prints them."""

# Not imported here, because PySpark is in the driver's Python and perhaps not in this one.
_APPLICATION = Path(__file__).with_name("kinds.py")
_PLUGINS, _PYTHON = "spark.plugins", "spark.pyspark.python"
# An application on a cluster waits for its executors, and each kind takes seconds.
_SECONDS = 600
_MOST_CHARACTERS = 500
_GUIDE = "docs/guides/executors-without-python.md"


def check_python_workers(confs: Mapping[str, str], interpreter: str, findings: Findings) -> None:
    """Run the application with a job's confs, in the driver's Python, and add a finding for each kind."""
    plugins = [name.strip() for name in confs.get(_PLUGINS, "").split(",")]
    if WORKER_PLUGIN not in plugins:
        findings.error(
            "plugin",
            f"{_PLUGINS} does not name {WORKER_PLUGIN}",
            "add it; `python -m updraft.spark --python-workers` prints all settings",
        )
        return
    results, reason = _run(confs, interpreter)
    for kind in KINDS:
        if kind not in results:
            findings.error(kind, f"not tried: {reason}", "fix this, then run the check again: it stops here")
            return
        _add(kind, results[kind], findings)


def _add(kind: str, problem: str, findings: Findings) -> None:
    if not problem:
        findings.ok(kind, "ran on the pool")
    elif "not on a pool" in problem:
        findings.error(kind, problem, f"set {_PYTHON} to updraft-python, and remove Python from the executors' image")
    elif problem.startswith("not tried"):
        findings.warning(kind, problem, "name a directory that the driver and all executors share")
    else:
        findings.error(
            kind, problem[-_MOST_CHARACTERS:], "docs/guides/executors-without-python.md: If something is wrong"
        )


def _run(confs: Mapping[str, str], interpreter: str) -> tuple[dict[str, str], str]:
    """Return the problems by kind, and the last line of the log."""
    environment = dict(os.environ)
    if python := confs.get(_PYTHON):
        # An application that a Python starts ignores the conf.
        environment["PYSPARK_PYTHON"] = python
    command = [interpreter_of(confs, interpreter), str(_APPLICATION)]
    try:
        ran = subprocess.run(  # noqa: S603 - Spark itself would run it
            command,
            input=json.dumps(dict(confs)),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return dict(_reported(_text(late.stdout))), f"the application did not end within {_SECONDS} seconds"
    except OSError as error:
        return {}, f"cannot run {command[0]}: {error.strerror}"
    lines = [line for line in ran.stderr.splitlines() if line.strip()]
    return dict(_reported(ran.stdout)), lines[-1] if lines else f"the application ended with {ran.returncode}"


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def _reported(output: str) -> Iterator[tuple[str, str]]:
    for line in output.splitlines():
        try:
            kind, problem = json.loads(line)
        except (ValueError, TypeError):
            continue
        yield kind, problem
