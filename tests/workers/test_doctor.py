# SPDX-License-Identifier: Apache-2.0
"""`updraft doctor --python-workers` tells whether every kind of worker runs on the pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from tests.support.paths import PYTHON, connector_jar
from tests.support.pool import LocalPool
from tests.support.spark import EXTENSION
from tests.workers.sides import LAUNCHER, PLUGIN
from updraft_cli.commands.doctor import Doctor
from updraft_cli.doctor.confs import SparkConfError
from updraft_cli.doctor.finding import Finding, Level


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool(workers=3) as pool:
        yield pool


def _findings(pool: LocalPool, **changes: str) -> Sequence[Finding]:
    confs = {
        "spark.jars": str(connector_jar()),
        "spark.sql.extensions": EXTENSION,
        "spark.updraft.udf.endpoint": pool.tcp_endpoint,
        "spark.plugins": PLUGIN,
        "spark.pyspark.python": str(LAUNCHER),
        "spark.pyspark.driver.python": str(PYTHON),
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    conf = [f"{name}={value}" for name, value in confs.items()]
    return Doctor(conf=conf, python_workers=True, timeout_seconds=60.0).findings()


KINDS = (
    "RDD",
    "barrier stage",
    "function",
    "table function",
    "data source",
    "data sink",
    "streaming source",
    "streaming sink",
    "applyInPandasWithState",
    "transformWithState",
)


def _levels(findings: Sequence[Finding]) -> Mapping[str, Level]:
    return {finding.check: finding.level for finding in findings if finding.subject == "workers"}


def test_every_kind_runs_on_the_pool(pool: LocalPool) -> None:
    findings = _findings(pool, spark_master="local[2]")
    assert _levels(findings) == dict.fromkeys(("application", "master", *KINDS), Level.OK), findings


@pytest.mark.campaign
def test_an_executor_with_its_own_python_is_found(pool: LocalPool) -> None:
    findings = _findings(pool, spark_pyspark_python=str(PYTHON))
    others = {"application": Level.OK, "master": Level.WARNING}
    assert _levels(findings) == {**others, **dict.fromkeys(KINDS, Level.ERROR)}, findings
    (rdd,) = (finding for finding in findings if finding.check == "RDD")
    assert rdd.found.startswith(f"the code ran in {PYTHON}")
    assert "set spark.pyspark.python to updraft-python" in rdd.advice


@pytest.mark.parametrize(
    ("changes", "check", "says"),
    [
        ({"spark_plugins": "org.example.Ours"}, "plugin", "does not name io.updraft.spark.WorkerPlugin"),
        pytest.param({"spark_master": "nowhere"}, "application", "Master must either be", marks=pytest.mark.campaign),
        ({"spark_pyspark_driver_python": "/nowhere/python"}, "application", "cannot run /nowhere/python"),
    ],
)
def test_a_start_failure_is_reported_once(pool: LocalPool, changes: Mapping[str, str], check: str, says: str) -> None:
    (found,) = (finding for finding in _findings(pool, **changes) if finding.subject == "workers")
    assert (found.check, found.level) == (check, Level.ERROR)
    assert says in found.found


def test_a_service_alone_has_no_workers(pool: LocalPool) -> None:
    with pytest.raises(SparkConfError, match="leave out --endpoint"):
        Doctor(endpoint=pool.tcp_endpoint, python_workers=True).findings()


def test_an_error_before_keeps_the_application_from_starting(pool: LocalPool) -> None:
    findings = _findings(pool, spark_sql_extensions="org.example.Ours")
    assert _levels(findings) == {"application": Level.WARNING}
