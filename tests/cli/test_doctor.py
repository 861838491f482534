# SPDX-License-Identifier: Apache-2.0
"""Each possible mistake in a job's conf is found by its own check, with advice; correct confs pass."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

from tests.cli.conftest import TOKEN
from tests.support.certificates import Authority
from tests.support.paths import PYTHON, VERSION, connector_jar
from tests.support.pool import LocalPool
from tests.support.spark import EXTENSION, SPARK_VERSION
from tests.support.writer import LocalWriter
from updraft.errors import WorkerError
from updraft.spark.jars import JARS
from updraft_cli.commands.doctor import Doctor
from updraft_cli.doctor import confs as confs_of_doctor
from updraft_cli.doctor import service
from updraft_cli.doctor.confs import SparkConfError
from updraft_cli.doctor.finding import Finding, Level
from updraft_cli.service import Service

_UDF = "spark.updraft.udf"
_OUR_SPARK = JARS["{}.{}".format(*SPARK_VERSION)][0]
_OTHER_SPARK = "4.2_2.13" if SPARK_VERSION < (4, 0) else "3.5_2.12"


def _right(pool: LocalPool) -> dict[str, str]:
    return {
        "spark.jars": str(connector_jar()),
        "spark.sql.extensions": f"org.example.Ours,{EXTENSION}",
        f"{_UDF}.endpoint": pool.tcp_endpoint,
    }


def _findings(confs: Mapping[str, str], **options: Any) -> list[Finding]:
    """Return the findings for confs as the command line passes them: values split at commas."""
    parts = [part for name, value in confs.items() for part in f"{name}={value}".split(",")]
    return list(Doctor(conf=parts, timeout_seconds=60.0, **options).findings())


def _only(findings: list[Finding], level: Level) -> Finding:
    """Return the only finding that is not ok."""
    (found,) = (finding for finding in findings if finding.level is not Level.OK)
    assert found.level is level
    assert found.advice
    return found


def test_nothing_is_found_where_nothing_is_wrong(pool: LocalPool, writer: LocalWriter) -> None:
    confs = _right(pool) | {"spark.updraft.write.endpoint": writer.tcp_endpoint}
    findings = _findings(confs)
    assert [finding.level for finding in findings] == [Level.OK] * len(findings)
    checks = {(finding.subject, finding.check) for finding in findings}
    assert {("udf", "round trip"), ("write", "round trip"), ("udf", "pyspark"), ("session", "jar")} <= checks


@pytest.mark.parametrize(
    ("mistake", "check", "says"),
    [
        ({"spark.sql.extensions": "org.example.Ours"}, "extension", "no function goes to a pool"),
        ({"spark.jars": f"/nowhere/updraft-spark-{_OUR_SPARK}-{VERSION}.jar"}, "jar", "does not exist"),
        ({"spark.jars": f"updraft-spark-{_OTHER_SPARK}-{VERSION}.jar"}, "jar", "is for another version of Spark"),
        ({f"{_UDF}.endpont": "grpc://x:1"}, "settings", "not a setting of the connector"),
        ({f"{_UDF}.endpoint": "http://pool:8815"}, "endpoint", "is not an endpoint"),
        ({f"{_UDF}.endpoint": "grpc://pool"}, "endpoint", "is not an endpoint"),
        ({f"{_UDF}.tokenFile": "/nowhere/token"}, "token", "cannot be read"),
        ({f"{_UDF}.tls.caFile": "/nowhere/ca.crt"}, "tls", "does not exist"),
        ({f"{_UDF}.endpoint": "grpc://nobody.invalid:8815"}, "dns", "has no address"),
        ({f"{_UDF}.endpoint": "grpc://127.0.0.1:1"}, "reach", "nothing answers"),
        ({f"{_UDF}.endpoint": "grpc+unix:///nowhere/pool.sock"}, "reach", "nothing listens"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_mistake_in_the_conf_is_found(pool: LocalPool, mistake: dict[str, str], check: str, says: str) -> None:
    findings = [finding for finding in _findings(_right(pool) | mistake) if finding.level is not Level.OK]
    error = next(finding for finding in findings if finding.level is Level.ERROR)
    assert (error.check, bool(error.advice)) == (check, True)
    assert says in error.found


def test_a_setting_of_spark_that_is_nearly_right_is_told(pool: LocalPool) -> None:
    confs = _right(pool)
    confs["spark.sql.extension"] = confs.pop("spark.sql.extensions")
    error = _only(_findings(confs), Level.ERROR)
    assert "spark.sql.extension is not a setting of Spark" in error.found
    assert error.advice == "did you mean spark.sql.extensions?"


@pytest.mark.parametrize("is_checkout", [True, False])
def test_a_jar_is_built_in_a_checkout_and_installed_elsewhere(
    pool: LocalPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_checkout: bool
) -> None:
    if not is_checkout:
        monkeypatch.setattr(confs_of_doctor, "_ROOT", tmp_path)
    advice = _only(_findings(_right(pool) | {"spark.jars": ""}), Level.WARNING).advice
    assert ("make connector" in advice) is is_checkout
    assert "spark.jars" in advice


def test_a_name_that_is_nearly_right_is_told(pool: LocalPool) -> None:
    error = _only(_findings(_right(pool) | {f"{_UDF}.fallbak": "local"}), Level.ERROR)
    assert f"did you mean {_UDF}.fallback?" in error.advice


@pytest.mark.parametrize(
    ("confs", "check"),
    [
        ({f"{_UDF}.enabled": "false"}, "settings"),
        ({"spark.master": "k8s://https://api:6443"}, "mounts"),
        (
            {"spark.master": "k8s://https://api:6443", "spark.kubernetes.executor.secrets.tokens": "/elsewhere"},
            "mounts",
        ),
    ],
    ids=["switched off", "not mounted", "mounted elsewhere"],
)
def test_what_may_be_meant_so_is_a_warning(
    pool: LocalPool, token_file: Path, confs: dict[str, str], check: str
) -> None:
    findings = _findings(_right(pool) | {f"{_UDF}.tokenFile": str(token_file)} | confs)
    assert _only(findings, Level.WARNING).check == check


def test_the_advice_for_a_missing_mount_does_not_make_the_job_wait(pool: LocalPool, token_file: Path) -> None:
    """A pod never starts if a Secret in its `spark.kubernetes.*.secrets` is missing."""
    confs = {"spark.master": "k8s://https://api:6443", f"{_UDF}.tokenFile": str(token_file)}
    advice = _only(_findings(_right(pool) | confs), Level.WARNING).advice
    assert "spark.kubernetes.executor.podTemplateFile" in advice
    assert ".secrets." not in advice


def test_a_drivers_key_belongs_on_the_driver_alone(pool: LocalPool, token_file: Path) -> None:
    key = {"spark.master": "k8s://https://api:6443", f"{_UDF}.signingKeyFile": str(token_file)}
    assert "mounts" not in {finding.check for finding in _findings(_right(pool) | key)}
    mounted = {"spark.kubernetes.executor.secrets.t": str(token_file.parent)}
    (found,) = (finding for finding in _findings(_right(pool) | key | mounted) if finding.check == "mounts")
    assert found.level is Level.ERROR
    assert "anybody who takes one over can sign as the driver" in found.found


def test_a_file_that_is_mounted_in_executors_is_not_warned_of(pool: LocalPool, token_file: Path) -> None:
    mounted = {"spark.master": "k8s://https://api:6443", "spark.kubernetes.executor.secrets.t": str(token_file.parent)}
    findings = _findings(_right(pool) | {f"{_UDF}.tokenFile": str(token_file)} | mounted)
    assert {finding.level for finding in findings} == {Level.OK}


def test_a_file_of_several_tokens_is_the_services_and_not_a_clients(pool: LocalPool, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("one\ntwo\n")
    error = _only(_findings(_right(pool) | {f"{_UDF}.tokenFile": str(tmp_path / "tokens")}), Level.ERROR)
    assert "more than one token" in error.found


@pytest.mark.parametrize(("port", "says"), [("admin", "not Flight"), ("metrics", "HTTP/2")])
def test_another_port_of_the_pool_is_found(pool: LocalPool, port: str, says: str) -> None:
    address = pool.admin_address if port == "admin" else pool.metrics_address
    error = _only(_findings(_right(pool) | {f"{_UDF}.endpoint": f"grpc://{address}"}), Level.ERROR)
    assert error.check == "service"
    assert says in error.found


def test_tls_where_there_is_none_is_found(pool: LocalPool) -> None:
    error = _only(_findings(_right(pool) | {f"{_UDF}.endpoint": f"grpc+tls://{pool.tcp_address}"}), Level.ERROR)
    assert (error.check, error.advice.startswith("use grpc://")) == ("tls", True)


@pytest.mark.parametrize("peer", ["udf", "write"])
def test_a_protocol_of_another_release_is_found(
    pool: LocalPool, writer: LocalWriter, peer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "PROTOCOL_VERSION", 2)
    confs = _right(pool) | {"spark.updraft.write.endpoint": writer.tcp_endpoint}
    error = next(each for each in _findings(confs) if each.level is Level.ERROR and each.subject == peer)
    assert error.check == "protocol"
    assert "of the same release" in error.advice


class _Other(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Flight service that is not Updraft's."""

    def list_actions(self, _context: flight.ServerCallContext) -> list[flight.ActionType]:
        return []


def test_a_flight_service_of_somebody_else_is_found(pool: LocalPool) -> None:
    with _Other("grpc://127.0.0.1:0") as other:
        error = _only(_findings(_right(pool) | {f"{_UDF}.endpoint": f"grpc://127.0.0.1:{other.port}"}), Level.ERROR)
    assert "neither a pool nor a writer" in error.found


def test_one_of_several_pods_that_does_not_answer_is_a_warning(
    pool: LocalPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = socket.getaddrinfo

    def also_resolved(host: str, *arguments: Any, **options: Any) -> list[Any]:
        hosts = ("127.0.0.1", "127.0.0.2") if host == "localhost" else (host,)
        return [found for each in hosts for found in resolved(each, *arguments, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", also_resolved)
    port = pool.tcp_address.rpartition(":")[2]
    warning = _only(_findings(_right(pool) | {f"{_UDF}.endpoint": f"grpc://localhost:{port}"}), Level.WARNING)
    assert warning.found == "127.0.0.2 of 2 does not answer"


def test_a_batch_that_does_not_come_back_is_found(pool: LocalPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_service: Service) -> int:
        raise WorkerError("the worker died")

    monkeypatch.setattr(Service, "send_a_batch", lost)
    error = _only(_findings(_right(pool)), Level.ERROR)
    assert (error.check, error.found) == ("round trip", "the worker died")


class _Careful:
    """Confs that reach the careful pool, except what a test changes."""

    def __init__(self, pool: LocalPool, authority: Authority, token_file: Path) -> None:
        client = authority.identity("client")
        self._pool = pool
        self._confs = _right(pool) | {
            f"{_UDF}.endpoint": f"grpc+tls://localhost:{pool.tcp_address.rpartition(':')[2]}",
            f"{_UDF}.tokenFile": str(token_file),
            f"{_UDF}.tls.caFile": str(authority.certificate),
            f"{_UDF}.tls.certificateFile": str(client.certificate),
            f"{_UDF}.tls.keyFile": str(client.key),
        }

    def error(self, *without: str, **changes: str) -> Finding:
        """Return the first error."""
        changed = {f"{_UDF}.{name.replace('_', '.')}": value for name, value in changes.items()}
        confs = {name: v for name, v in (self._confs | changed).items() if name.removeprefix(f"{_UDF}.") not in without}
        return next(finding for finding in _findings(confs) if finding.level is Level.ERROR)


@pytest.fixture
def careful(careful_pool: LocalPool, authority: Authority, token_file: Path) -> _Careful:
    return _Careful(careful_pool, authority, token_file)


def test_a_pool_that_runs_registered_functions_alone_is_found_behind_tls_and_token(careful: _Careful) -> None:
    assert careful.error().check == "functions"


def test_an_authority_that_did_not_sign_is_found(careful: _Careful, stranger: Authority) -> None:
    error = careful.error(tls_caFile=str(stranger.certificate))
    assert error.check == "tls"
    assert "is not signed by" in error.found


def test_a_name_that_the_certificate_has_not_is_found(careful: _Careful, careful_pool: LocalPool) -> None:
    error = careful.error(endpoint=f"grpc+tls://{careful_pool.tcp_address}")
    assert "the certificate is for localhost, not for 127.0.0.1" in error.found


def test_a_missing_client_certificate_is_found(careful: _Careful) -> None:
    error = careful.error("tls.certificateFile", "tls.keyFile")
    assert error.check == "tls"
    assert "set tls.certificateFile" in error.advice


def test_a_client_certificate_of_a_stranger_is_found(careful: _Careful, stranger: Authority) -> None:
    theirs = stranger.identity("client")
    error = careful.error(tls_certificateFile=str(theirs.certificate), tls_keyFile=str(theirs.key))
    assert "lacks the authority that signed" in error.advice


def test_a_certificate_without_its_key_is_found(careful: _Careful) -> None:
    assert careful.error("tls.keyFile").found == "a certificate and its key go together"


def test_no_tls_where_there_is_some_is_found(careful: _Careful, careful_pool: LocalPool) -> None:
    error = careful.error(endpoint=f"grpc://{careful_pool.tcp_address}")
    assert "speaks TLS, but the endpoint does not" in error.found


@pytest.mark.parametrize("token", ["", "guessed"])
def test_a_missing_or_wrong_token_is_found(careful: _Careful, token: str) -> None:
    error = careful.error("tokenFile", token=token) if token else careful.error("tokenFile")
    assert error.check == "token"
    assert TOKEN not in error.found


@pytest.mark.parametrize(
    ("days", "level", "says"), [(-1, Level.ERROR, "not valid since"), (5, Level.WARNING, "valid until")]
)
def test_a_certificate_that_ends_is_found(tmp_path: Path, days: int, level: Level, says: str) -> None:
    authority = Authority(tmp_path / "ours")
    own = authority.identity("localhost", not_after=datetime.now(UTC) + timedelta(days=days, hours=1))
    arguments = ["--tls-certificate-file", str(own.certificate), "--tls-key-file", str(own.key)]
    with LocalPool(workers=1, arguments=arguments) as pool:
        confs = _right(pool) | {
            f"{_UDF}.endpoint": f"grpc+tls://localhost:{pool.tcp_address.rpartition(':')[2]}",
            f"{_UDF}.tls.caFile": str(authority.certificate),
        }
        found = _only(_findings(confs), level)
    assert (found.check, says in found.found) == ("tls", True)


def _interpreter(directory: Path, python: str, pyspark: str) -> str:
    path = directory / "python"
    path.write_text(f"#!/bin/sh\necho '{json.dumps({'python': python, 'pyspark': pyspark})}'\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("python", "pyspark", "checks"),
    [("3.9.2", "", ["python"]), ("", "3.4.1", ["jar", "pyspark"]), ("3.9.2", "3.4.1", ["jar", "python", "pyspark"])],
)
def test_versions_of_the_driver_that_the_pool_has_not_are_found(
    pool: LocalPool, tmp_path: Path, python: str, pyspark: str, checks: list[str]
) -> None:
    findings = _findings(_right(pool), python=_interpreter(tmp_path, python, pyspark))
    assert [finding.check for finding in findings if finding.level is Level.ERROR] == checks


def test_an_interpreter_that_is_elsewhere_is_a_warning(pool: LocalPool) -> None:
    findings = _findings(_right(pool) | {"spark.pyspark.python": "/opt/job/bin/python"})
    assert [finding.level for finding in findings if finding.check in ("python", "pyspark")] == [Level.WARNING] * 2


def test_a_conf_without_an_endpoint_is_refused_in_words() -> None:
    with pytest.raises(SparkConfError, match="has no endpoint"):
        _findings({"spark.sql.extensions": EXTENSION})


def _updraft(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(PYTHON.with_name("updraft")), *arguments, "--timeout-seconds", "60"]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_the_command_reads_spark_defaults_and_ends_with_what_it_found(pool: LocalPool, tmp_path: Path) -> None:
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text("# ours\n" + "".join(f"{name}   {value}\n" for name, value in _right(pool).items()))
    well = _updraft("doctor", "--defaults", str(defaults))
    assert (well.returncode, "No errors." in well.stdout) == (0, True), well.stdout + well.stderr
    wrong = _updraft("doctor", "--defaults", str(defaults), "--conf", f"{_UDF}.endpoint=grpc://a:1,b", "--output=json")
    assert wrong.returncode == 1
    assert [finding["check"] for finding in json.loads(wrong.stdout) if finding["level"] == "error"] == ["endpoint"]
