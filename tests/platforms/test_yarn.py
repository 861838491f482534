# SPDX-License-Identifier: Apache-2.0
"""docs/guides/yarn.md, typed as it is written beside Hadoop's minicluster: the job runs in containers of YARN."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.platforms.console import Console, OtherPorts
from tests.platforms.guide import Guide
from tests.platforms.run_job import run_job
from tests.support.java import java_home
from tests.support.paths import BUILD, PYTHON, connector_jar
from tests.support.waiting import until

_GUIDE = Guide("yarn")
_PORTS = OtherPorts(8815, 8816, 8826, 9826)
_ENVIRONMENT = {"UPDRAFT_ADMIN_LISTEN": "127.0.0.1:0", "UPDRAFT_METRICS_LISTEN": "127.0.0.1:0"}
_SPARK_JARS = Path(pyspark.__file__).parent / "jars"
_MINICLUSTER = sorted((BUILD / "yarn").glob("*.jar"))

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def hadoop_conf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start a cluster and yield its configuration."""
    directory = tmp_path_factory.mktemp("yarn")
    site = directory / "conf/yarn-site.xml"
    site.parent.mkdir()
    version = next(jar.stem.rpartition("-")[2] for jar in _SPARK_JARS.glob("hadoop-client-api-*.jar"))
    if not any(jar.stem.endswith(version) for jar in _MINICLUSTER):
        pytest.skip(
            f"build/yarn has no minicluster of this Spark's Hadoop, {version}: `make test-platforms` fetches one"
        )
    small = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Dtest.build.data={directory}/data")
    jars = ":".join(map(str, [*_MINICLUSTER, _SPARK_JARS / "*"]))
    program = Path(__file__).parent / "java/MiniYarn.java"
    with (directory / "log").open("wb") as log:
        cluster = subprocess.Popen(
            ["java", *small, "-cp", jars, str(program), str(site)],
            cwd=directory,
            env={**os.environ, "JAVA_HOME": str(java_home())},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )

    def serves() -> bool:
        assert cluster.poll() is None, (directory / "log").read_text()
        return site.exists()

    try:
        until("YARN serves", serves, timeout_seconds=120)
        yield site.parent
    finally:
        assert cluster.stdin
        cluster.stdin.close()
        cluster.wait(120)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Follow the guide and yield its directory."""
    directory = tmp_path_factory.mktemp("services")
    with Console(directory, [_PORTS.into(command) for command in _GUIDE.commands], _ENVIRONMENT) as console:
        console.wait_for("pool is ready")
        console.wait_for("writer is ready")
        yield directory


def test_a_job_runs_in_containers_without_a_python_there(services: Path, hadoop_conf: Path, tmp_path: Path) -> None:
    confs = {name: _PORTS.into(value) for name, value in _GUIDE.confs.items()}
    assert Path(confs["spark.jars"]).name == connector_jar().name
    confs["spark.jars"] = str(connector_jar())
    # Otherwise each application would upload 300 MB to a directory of this machine's user.
    confs["spark.yarn.jars"] = f"local:{_SPARK_JARS}/*"
    confs["spark.yarn.stagingDir"] = str(tmp_path / "staging")
    job = tmp_path / "job"
    job.mkdir()
    shutil.copy(services / "token", job)
    environment = {
        "HADOOP_CONF_DIR": str(hadoop_conf),
        "PYSPARK_PYTHON": "/nonexistent/python",
        "PYSPARK_DRIVER_PYTHON": str(PYTHON),
    }
    outcome = run_job(job, confs, str(tmp_path / "table"), environment=environment)
    assert outcome.right
    assert outcome.executors == 2
