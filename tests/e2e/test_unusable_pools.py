# SPDX-License-Identifier: Apache-2.0
"""Every way in which a pool can be unusable: the driver finds out before there is a task, and obeys `fallback`."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from signing import Driver

from tests.e2e.writer.written import FAILURES
from tests.support.certificates import Authority, Identity
from tests.support.flight import Result
from tests.support.pool import LocalPool
from tests.support.signing import KEY_FILE, Signing, new_signing
from tests.support.spark import (
    ENABLED,
    ENDPOINT,
    executed_plan,
    flight_operators,
    runtime_confs,
    stock_operators,
    wait_for_listeners,
)
from tests.support.wire import CLIENT, Passing, serving
from updraft.v1.control_pb2 import PoolStatus

_UDF = "spark.updraft.udf"
_FALLBACK = f"{_UDF}.fallback"
_CA, _CERTIFICATE, _KEY = f"{_UDF}.tls.caFile", f"{_UDF}.tls.certificateFile", f"{_UDF}.tls.keyFile"
_TOKEN_FILE, _TENANT = f"{_UDF}.tokenFile", f"{_UDF}.tenant"

_PLANNED = "within 3.0 s"
"""Time in errors for which a driver looks for a pool at planning (PlanningMilliseconds)."""

_TOKENS = {"session": "may-ship", "call": "may-call"}
_UNKNOWN_TOKEN = "a-wrong-one"


class Places:
    """Pools that a session cannot use as they are, and the credentials of sessions and pools."""

    def __init__(self, directory: Path, signing: Signing, plain: LocalPool) -> None:
        self.plain = plain
        self.directory = directory
        self.signing = signing
        self.ours, self.stranger = Authority(directory / "ours"), Authority(directory / "strangers")
        self.client, self.strange_client = self.ours.identity("driver"), self.stranger.identity("driver")
        self.nowhere = directory / "absent"
        self.server = self.ours.identity("127.0.0.1")
        self.identities = self._written("identities.toml", "".join(map(_identity, _TOKENS)))
        for scope, token in {**_TOKENS, "unknown": _UNKNOWN_TOKEN}.items():
            self._written(scope, token)
        self.foreign_key = self._written("foreign.pem", Driver("foreign").private_pem)
        self.foreign_key.chmod(0o600)

    def _written(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    @contextmanager
    def pools(self) -> Iterator[None]:
        """Start a pool that requires a certificate, a token and a signature, and one with only registered functions."""
        arguments = [
            *("--tls-certificate-file", str(self.server.certificate), "--tls-key-file", str(self.server.key)),
            *("--tls-client-ca-file", str(self.ours.certificate), "--identities-file", str(self.identities)),
            *("--signers-file", str(self.signing.signers_file)),
        ]
        with (
            LocalPool(workers=1, session_functions="signed", arguments=arguments) as self.guarded,
            LocalPool(workers=1, session_functions="off") as self.registered_only,
        ):
            yield

    def known(self, **changes: Path | str | None) -> dict[str, str]:
        """Return confs with which the guarded pool accepts a session, with these changes; None leaves a conf unset."""
        confs: dict[str, Path | str | None] = {
            "endpoint": f"grpc+tls://{self.guarded.tcp_address}",
            "tls.caFile": self.ours.certificate,
            "tls.certificateFile": self.client.certificate,
            "tls.keyFile": self.client.key,
            "tokenFile": self.directory / "session",
            "signingKeyFile": self.signing.key_file,
            **{name.replace("_", "."): value for name, value in changes.items()},
        }
        return {f"{_UDF}.{name}": str(value) for name, value in confs.items() if value is not None}


def _identity(scope: str) -> str:
    digest = hashlib.sha256(_TOKENS[scope].encode()).hexdigest()
    return f'[[identity]]\nname = "{scope}s"\ntenant = "a"\nscopes = ["{scope}"]\ntoken_sha256 = ["{digest}"]\n'


def _of(identity: Identity) -> dict[str, Path | str | None]:
    return {"tls_certificateFile": identity.certificate, "tls_keyFile": identity.key}


class Case(NamedTuple):
    """Defect, fallback reason, and the words of the error."""

    confs: Callable[[Places], Mapping[str, str]]
    reason: str
    says: tuple[str, ...]


_CASES: Mapping[str, Case] = {
    "no certificate": Case(
        lambda at: at.known(tls_certificateFile=None, tls_keyFile=None),
        "certificate",
        ("asks for a client certificate, and this client sent none", _CERTIFICATE, _KEY),
    ),
    "a stranger's certificate": Case(
        lambda at: at.known(**_of(at.strange_client)), "certificate", ("does not accept the one in", _CERTIFICATE)
    ),
    "another authority": Case(
        lambda at: at.known(tls_caFile=at.stranger.certificate), "certificate", (_CA, "PKIX path")
    ),
    "a certificate of another name": Case(
        lambda at: at.known(endpoint=f"grpc+tls://localhost:{at.guarded.tcp_address.rpartition(':')[2]}"),
        "certificate",
        (_CA, "localhost"),
    ),
    "TLS there alone": Case(
        lambda at: at.known(endpoint=f"grpc://{at.guarded.tcp_address}"),
        "unreachable",
        ("only one side uses TLS", ENDPOINT),
    ),
    "TLS here alone": Case(
        lambda at: at.known(endpoint=f"grpc+tls://{at.plain.tcp_address}"),
        "unreachable",
        ("only one side uses TLS", ENDPOINT),
    ),
    "no token": Case(lambda at: at.known(tokenFile=None), "unauthenticated", (_TOKEN_FILE,)),
    "an unknown token": Case(
        lambda at: at.known(tokenFile=at.directory / "unknown"), "unauthenticated", (_TOKEN_FILE,)
    ),
    "a missing token file": Case(
        lambda at: at.known(tokenFile=at.nowhere), "unusable-file", (_TOKEN_FILE, "NoSuchFile")
    ),
    "an unreadable token file": Case(
        lambda at: at.known(tokenFile=at.directory), "unusable-file", (_TOKEN_FILE, "Is a directory")
    ),
    "a missing file of authorities": Case(
        lambda at: at.known(tls_caFile=at.nowhere), "unusable-file", (_CA, "no such file")
    ),
    "a file of authorities that holds none": Case(
        lambda at: at.known(tls_caFile=at.directory / "session"), "unusable-file", (_CA, "valid certificates")
    ),
    "a missing key of the certificate": Case(
        lambda at: at.known(tls_keyFile=at.nowhere), "unusable-file", (_KEY, "no such file")
    ),
    "a certificate without a key": Case(
        lambda at: at.known(tls_keyFile=None), "unusable-file", (_CERTIFICATE, _KEY, "go together")
    ),
    "another scope": Case(
        lambda at: at.known(tokenFile=at.directory / "call"),
        "permission",
        ("needs the scope session, but has call", _TOKEN_FILE),
    ),
    "another tenant": Case(lambda at: at.known(tenant="b"), "permission", ("cannot act for 'b'", _TENANT)),
    "no signature": Case(lambda at: at.known(signingKeyFile=None), "unsigned", (KEY_FILE,)),
    "a foreign signing key": Case(
        lambda at: at.known(signingKeyFile=at.foreign_key), "unsigned", ("does not know the key", KEY_FILE)
    ),
    "a missing signing key": Case(
        lambda at: at.known(signingKeyFile=at.nowhere), "unusable-file", (KEY_FILE, "the driver has no such file")
    ),
    "a signing key that is none": Case(
        lambda at: at.known(signingKeyFile=at.client.certificate), "unusable-file", (KEY_FILE,)
    ),
    "registered functions only": Case(
        lambda at: {ENDPOINT: at.registered_only.tcp_endpoint},
        "registered-only",
        ("the pool runs registered functions only", "--session-functions", ENDPOINT),
    ),
    "no such host": Case(
        lambda _at: {ENDPOINT: "grpc://no-such-host.invalid:8815"},
        "unreachable",
        (_PLANNED, "name not found", ENDPOINT),
    ),
}


@pytest.fixture(scope="module")
def places(pool: LocalPool, stock_only: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    with new_signing() as signing:
        places = Places(tmp_path_factory.mktemp("places"), signing, pool)
        with places.pools():
            yield places


def _plus_one(spark: SparkSession) -> DataFrame:
    return spark.range(0, 10, 1, 1).select(F.udf(lambda x: x + 1, "bigint")("id").alias("x"))


def _answers(frame: DataFrame) -> list[int]:
    return [row.x for row in frame.collect()]


def _assert_runs_on_stock(spark: SparkSession, confs: Mapping[str, str], reason: str) -> str:
    """Check that a query runs on stock for this reason, and return the plan."""
    with runtime_confs(spark, {ENABLED: "true", **confs, _FALLBACK: "local"}):
        frame = _plus_one(spark)
        assert _answers(frame) == list(range(1, 11))
        plan = executed_plan(frame)
    assert stock_operators(plan)
    assert not flight_operators(plan)
    assert f"({reason})" in plan
    return plan


def _error_before_a_task(spark: SparkSession, confs: Mapping[str, str]) -> str:
    """Return the error of a query that needs the pool."""
    group = "a pool that cannot be used"
    with runtime_confs(spark, {ENABLED: "true", **confs, _FALLBACK: "fail"}):
        frame = _plus_one(spark)
        spark.sparkContext.setJobGroup(group, group)
        try:
            with pytest.raises(FAILURES) as caught:
                frame.collect()
        finally:
            spark.sparkContext._jsc.clearJobGroup()
    wait_for_listeners(spark)
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    error = str(caught.value)
    assert f"set {_FALLBACK} = local" in error
    assert _UNKNOWN_TOKEN not in error
    return error


def test_the_guarded_pool_takes_a_session_that_it_knows(spark: SparkSession, places: Places) -> None:
    with runtime_confs(spark, {ENABLED: "true", **places.known()}):
        frame = _plus_one(spark)
        assert _answers(frame) == list(range(1, 11))
        assert flight_operators(executed_plan(frame))


@pytest.mark.parametrize("case", _CASES.values(), ids=_CASES)
def test_a_query_that_may_runs_without_the_pool(spark: SparkSession, places: Places, case: Case) -> None:
    _assert_runs_on_stock(spark, case.confs(places), case.reason)


@pytest.mark.parametrize("case", _CASES.values(), ids=_CASES)
def test_a_query_that_needs_the_pool_fails_before_a_task_and_names_the_setting(
    spark: SparkSession, places: Places, case: Case
) -> None:
    error = _error_before_a_task(spark, case.confs(places))
    for words in case.says:
        assert words in error


@pytest.mark.parametrize("of", ["python_version", "pyspark_version", "protocol_version"])
def test_another_version_is_one_of_them(spark: SparkSession, places: Places, of: str) -> None:
    def changed(_method: str, sender: str, message: bytes) -> bytes:
        result = Result.FromString(message)
        if sender == CLIENT or result.body.startswith(b"{"):
            return message
        status = PoolStatus.FromString(result.body)
        setattr(status, of, 9 if of == "protocol_version" else "2.7.18")
        result.body = status.SerializeToString()
        return bytes(result.SerializeToString())

    with serving(Passing(places.plain.tcp_address, changed)) as address:
        confs = {ENDPOINT: f"grpc://{address}"}
        _assert_runs_on_stock(spark, confs, "version")
        assert ENDPOINT in _error_before_a_task(spark, confs)


def test_a_place_where_nothing_listens_is_looked_for_no_longer_than_planning_may_take(
    spark: SparkSession, places: Places
) -> None:
    with socket.socket() as unserved:
        unserved.bind(("127.0.0.1", 0))
        confs = {ENDPOINT: f"grpc://127.0.0.1:{unserved.getsockname()[1]}"}
        assert _PLANNED in _assert_runs_on_stock(spark, confs, "unreachable")
        # A pool that may still start is awaited if it is needed, as the setting says.
        error = _error_before_a_task(spark, {**confs, f"{_UDF}.connectTimeout": "4s"})
        assert f"within 4.0 s ({_UDF}.connectTimeout): connection refused" in error


def test_a_place_that_takes_connections_and_says_nothing_is_one_of_them(spark: SparkSession, places: Places) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        plan = _assert_runs_on_stock(spark, {ENDPOINT: endpoint}, "unreachable")
    assert f"the service at {endpoint} did not answer {_PLANNED}" in plan
