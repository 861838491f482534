# SPDX-License-Identifier: Apache-2.0
"""`updraft-python` without the plugin, and started like a Python interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workers import no_python
from tests.workers.sides import LAUNCHER


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
