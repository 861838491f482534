# SPDX-License-Identifier: Apache-2.0
"""First hour of the notebook guide on a cluster: its cells, in a session whose functions run in pods.

Other files cover parts of it: `conftest.py` installs the chart; test_operations.py runs `helm test`, which is `updraft
doctor` next to each service; test_release.py runs UDFs and writes a table; test_faults.py kills whole pods; and
test_sidecar.py crashes a function in a pool next to executors. This file has only what a pool's user does.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.dist.guides import cells
from tests.kube.cluster import Release
from tests.support.kinds_of_spark import needs_spark
from tests.support.waiting import until

_POOL = "pool-default"
_ROWS = 1_000_000
_DOCTOR_SECONDS, _FREE_SECONDS = 60, 60
_, _CRASH, _PACKAGE, _CANCEL, _, _WRITE = cells("notebook")


class _Pool:
    """Object that the guide's cells know as `pool`; here it stands for all its pods."""

    def __init__(self, release: Release):
        self._release = release
        self._start_seconds = time.monotonic()

    def log(self) -> str:
        """Return the log of its fronts since the test began."""
        return self._release.log(_POOL, "front", since_seconds=int(time.monotonic() - self._start_seconds) + 1)


def _run(cell: str, spark: SparkSession, release: Release) -> None:
    """Run a cell after the first one, in this process's current directory."""
    degrees = spark.range(_ROWS).select(
        F.pandas_udf(lambda celsius: celsius * 1.8 + 32, "double")("id").alias("degrees")
    )
    # With this module name, functions are pickled by value, like those of a notebook.
    exec(cell, {"__name__": "__main__", "degrees": degrees, "pool": _Pool(release), "spark": spark, "udf": F.udf})


def test_a_function_that_crashes_fails_its_query_and_the_session_goes_on(
    spark: SparkSession, release: Release, capfd: pytest.CaptureFixture[str]
) -> None:
    before = release.restarts(_POOL)
    _run(_CRASH, spark, release)
    said = capfd.readouterr().out
    assert "killed two workers: the worker was killed by SIGABRT" in said
    # The highest of a million temperatures shows that the session and the pool still work.
    assert "1800030.2\n" in said
    assert release.restarts(_POOL) == before


def test_a_package_of_the_session_is_imported_in_pods(
    spark: SparkSession,
    release: Release,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    needs_spark((4, 0), "addArtifacts of a classic session")
    monkeypatch.chdir(tmp_path)
    _run(_PACKAGE, spark, release)
    assert "|273.15|" in capfd.readouterr().out


def test_a_cancelled_query_gives_its_worker_back(
    spark: SparkSession, release: Release, capfd: pytest.CaptureFixture[str]
) -> None:
    needs_spark((4, 0), "interruptAll of a classic session")
    _run(_CANCEL, spark, release)
    assert "[SPARK_JOB_CANCELLED]" in capfd.readouterr().out
    until("nothing runs", lambda: release.running(_POOL) == 0, timeout_seconds=_FREE_SECONDS)


def test_a_table_is_written_and_read(
    spark: SparkSession,
    release: Release,
    tables: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # The cell writes below the current directory, and the writer only below its roots.
    monkeypatch.chdir(tables)
    _run(f"import os\n{_WRITE}", spark, release)
    assert f"{_ROWS}\n" in capfd.readouterr().out
    assert list((tables / "tables/degrees").glob("*.parquet"))


def test_doctor_finds_nothing_wrong_from_outside_the_cluster(release: Release, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(release.token(_POOL))
    endpoint = f"grpc://{release.cluster_ip(_POOL)}:8815"
    command = [str(Path(sys.executable).with_name("updraft")), "doctor", "--endpoint", endpoint]
    command += ["--token-file", str(tmp_path / "token")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_DOCTOR_SECONDS, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "No errors." in ran.stdout
