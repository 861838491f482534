# SPDX-License-Identifier: Apache-2.0
"""`updraft-python` without the plugin, and `updraft-python` with a Python interpreter's arguments."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import PYTHON, REPOSITORY
from tests.support.pool import LocalPool
from tests.workers import no_python
from tests.workers.sides import LAUNCHER

_LONGEST_SECONDS = 180
_MOST_MIB = 64


def launched(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LAUNCHER, *arguments], capture_output=True, text=True, timeout=20, check=False)


def test_pyspark_is_there() -> None:
    assert launched("-c", "import pyspark").returncode == 0


@pytest.mark.parametrize("arguments", [(), ("job.py",), ("-c", "print(1)"), ("-V",)])
def test_it_is_no_python(arguments: tuple[str, ...]) -> None:
    done = launched(*arguments)
    assert done.returncode == 2
    assert f'cannot run "{" ".join(arguments)}"' in done.stderr
    assert "set spark.pyspark.driver.python to a Python" in done.stderr


def test_without_the_plugin_the_error_names_the_settings() -> None:
    done = launched("-m", "pyspark.daemon", "pyspark.worker")
    assert done.returncode == 2
    assert "set spark.plugins to io.updraft.spark.WorkerPlugin" in done.stderr
    assert "spark.jars" in done.stderr


@pytest.mark.skipif(not no_python.environment(), reason="this user may not mount")
def test_the_jvms_of_scenarios_can_start_no_python() -> None:
    environment = {**os.environ, **no_python.environment(Path("/bin/sh"))}
    found = [str(path) for path in no_python.pythons()]
    assert Path(sys.executable).resolve() in no_python.pythons()
    assert shutil.which("python3")
    for python in ["python3", sys.executable, *found]:
        command = [str(no_python.JAVA), "-c", f"echo begun; {python} -c 1 && echo ended well"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=False)
        assert done.stdout == "begun\n", python


def measured(endpoint: str, directory: Path) -> dict[str, Any]:
    """Return the measurements of the application on the pool at `endpoint`; without an endpoint, on stock."""
    directory.mkdir()
    result = directory / "result.json"
    command = [str(PYTHON), "-m", "tests.workers.launcher_application", endpoint, str(directory), str(result)]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=_LONGEST_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return dict(json.loads(result.read_text()))


@pytest.mark.campaign
def test_an_executor_starts_it_once_and_needs_little_memory_for_it(tmp_path: Path) -> None:
    with LocalPool(workers=2) as pool, ThreadPoolExecutor() as threads:
        on_stock = threads.submit(measured, "", tmp_path / "stock")
        ours = measured(pool.tcp_endpoint, tmp_path / "updraft")
        stock = on_stock.result()
    assert ours["daemons"] == [1]
    assert ours["mib"]["processes"] > 0
    in_the_jvm = sum(ours["mib"][part] - stock["mib"][part] for part in ("heap", "buffers"))
    assert in_the_jvm + ours["mib"]["processes"] < _MOST_MIB, (ours, stock)
