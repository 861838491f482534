# SPDX-License-Identifier: Apache-2.0
"""`updraft-python` without the plugin, and as what it is not: a Python."""

from __future__ import annotations

import subprocess

import pytest

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
