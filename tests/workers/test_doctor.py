# SPDX-License-Identifier: Apache-2.0
"""`updraft doctor --python-workers` reports whether every kind of worker runs on the pool."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.marked import MARK, marked
from tests.support.paths import PYTHON, connector_jar
from tests.support.pool import LocalPool
from tests.support.spark import EXTENSION
from tests.support.waiting import until
from tests.workers.doctor_application import KINDS as KINDS_VARIABLE
from tests.workers.doctor_application import LIMITS as LIMITS_VARIABLE
from tests.workers.sides import LAUNCHER, PLUGIN
from updraft_cli.commands.doctor import Doctor
from updraft_cli.doctor.confs import SparkConfError, spark_conf
from updraft_cli.doctor.driver import driver_of
from updraft_cli.doctor.finding import Finding, Findings, Level
from updraft_cli.doctor.python_workers import Application, check_python_workers

_APPLICATION = Application(Path(__file__).with_name("doctor_application.py"), longest_seconds=240, end_seconds=5)
_LONG_SECONDS = 120


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool(workers=3) as pool:
        yield pool


def _confs(pool: LocalPool, changes: Mapping[str, str]) -> Sequence[str]:
    confs = {
        "spark.jars": str(connector_jar()),
        "spark.sql.extensions": EXTENSION,
        "spark.updraft.udf.endpoint": pool.tcp_endpoint,
        "spark.plugins": PLUGIN,
        "spark.pyspark.python": str(LAUNCHER),
        "spark.pyspark.driver.python": str(PYTHON),
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    return [f"{name}={value}" for name, value in confs.items()]


def _findings(pool: LocalPool, **changes: str) -> Sequence[Finding]:
    return Doctor(conf=list(_confs(pool, changes)), python_workers=True, timeout_seconds=60.0).findings()


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
    "foreachBatch",
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


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a marker in the environment of every process that this test starts from now on."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    return mark


def _tried(
    pool: LocalPool, monkeypatch: pytest.MonkeyPatch, kinds: Sequence[str], limits: Sequence[float]
) -> Mapping[str, Finding]:
    """Return the doctor's findings about these kinds. `limits` are the values of `Limits`, in order."""
    monkeypatch.setenv(KINDS_VARIABLE, ",".join(kinds))
    monkeypatch.setenv(LIMITS_VARIABLE, ",".join(map(str, limits)))
    confs = spark_conf(None, _confs(pool, {"spark_master": "local[2]"}))
    findings = Findings("workers")
    check_python_workers(confs, driver_of(confs, ""), "", findings, _APPLICATION)
    return {finding.check: finding for finding in findings.all}


@pytest.mark.parametrize("planner", ["analyze", pytest.param("schema", marks=pytest.mark.campaign)])
def test_a_planner_that_never_returns_holds_up_nothing_else(
    pool: LocalPool, monkeypatch: pytest.MonkeyPatch, mark: str, planner: str
) -> None:
    found = _tried(pool, monkeypatch, [planner, "function"], [5, _LONG_SECONDS, 2])
    assert found[planner].found == "it did not end within 5 seconds"
    assert "at the pool's queue" in found[planner].advice
    assert {check: finding.level for check, finding in found.items() if check != planner} == {
        "application": Level.OK,
        "master": Level.OK,
        "function": Level.OK,
    }
    until("no process is left", lambda: not marked(mark))


@pytest.mark.campaign
def test_a_jvm_that_does_not_answer_is_killed(pool: LocalPool, monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    found = _tried(pool, monkeypatch, ["stopped JVM", "RDD", "foreachBatch"], [2, 2, 1])
    late = {kind: finding.found for kind, finding in found.items() if finding.level is Level.ERROR}
    assert late == {
        **dict.fromkeys(("stopped JVM", "RDD", "foreachBatch"), "it did not end within 2 seconds"),
        "checkpoints": late["checkpoints"],
    }
    assert late["checkpoints"].endswith("the file system does not answer")
    until("no process is left", lambda: not marked(mark))


@pytest.mark.campaign
def test_a_driver_without_connect_skips_its_kind(
    pool: LocalPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tmp_path.joinpath("grpc.py").write_text("raise ImportError('no grpc here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = _tried(pool, monkeypatch, ["foreachBatch"], [_LONG_SECONDS, _LONG_SECONDS, 5])
    assert found["foreachBatch"].level is Level.WARNING
    assert "not checked: the driver's Python cannot import PySpark's Connect client" in found["foreachBatch"].found
    assert "grpcio" in found["foreachBatch"].found
    assert found["application"].level is Level.OK
