# SPDX-License-Identifier: Apache-2.0
"""Executors in separate processes, whose working directory contains more files than the session's own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.support.paths import PYTHON, REPOSITORY
from tests.support.pool import LocalPool
from tests.workers import no_python

_LONGEST_SECONDS = 180


def test_an_executor_sends_named_files_and_frees_workers(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    with LocalPool(workers=2) as pool:
        module = "tests.workers.executor_application"
        command = [str(PYTHON), "-m", module, pool.tcp_endpoint, str(tmp_path), str(result)]
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env={**os.environ, **no_python.environment()},
            capture_output=True,
            text=True,
            timeout=_LONGEST_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-5000:]
    assert json.loads(result.read_text()) == {
        # False if this user may mount: the JVM then runs where no Python can be started.
        "python": not no_python.environment(),
        "files": [["named.txt"], ["named.txt"]],
        "broadcast": ["value", "value"],
        "unpersisted": ["value", "value"],
        "cancelled": True,
        "sum": 10,
        "workers are free": True,
        # One process serves all jobs, including the job after the cancelled job.
        "daemons": [1],
        "resource profile": [2, 2, 2, 2],
    }
