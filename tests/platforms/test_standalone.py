# SPDX-License-Identifier: Apache-2.0
"""docs/guides/standalone.md, typed as it is written: a master, two workers, a pool, a writer and a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.platforms.console import Console, OtherPorts
from tests.platforms.guide import Guide
from tests.platforms.run_job import run_job
from tests.support.paths import PYTHON, connector_jar

_GUIDE = Guide("standalone")
# Ports of the pool that the guide leaves at their defaults.
_ENVIRONMENT = {"UPDRAFT_ADMIN_LISTEN": "127.0.0.1:0", "UPDRAFT_METRICS_LISTEN": "127.0.0.1:0"}

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def ports() -> OtherPorts:
    return OtherPorts(7077, 8080, 8081, 8082, 8815, 8816, 8826, 9826)


@pytest.fixture(scope="module")
def cluster(ports: OtherPorts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Follow the guide and yield its directory."""
    directory = tmp_path_factory.mktemp("standalone")
    commands = [ports.into(command) for command in _GUIDE.commands]
    with Console(directory, commands, _ENVIRONMENT) as console:
        console.wait_for("Successfully registered with master", times=2)
        console.wait_for("pool is ready")
        console.wait_for("writer is ready")
        yield directory


def test_a_job_runs_on_both_workers_without_a_python_there(cluster: Path, ports: OtherPorts, tmp_path: Path) -> None:
    confs = {name: ports.into(value) for name, value in _GUIDE.confs.items()}
    assert Path(confs["spark.jars"]).name == connector_jar().name
    confs["spark.jars"] = str(connector_jar())
    for service in ("udf", "write"):
        confs[f"spark.updraft.{service}.tokenFile"] = str(cluster / confs[f"spark.updraft.{service}.tokenFile"])
    no_python = {"PYSPARK_PYTHON": "/nonexistent/python", "PYSPARK_DRIVER_PYTHON": str(PYTHON)}
    outcome = run_job(tmp_path / "job", confs, str(cluster / "tables/made"), environment=no_python)
    assert outcome.right
    assert outcome.executors == 2
