# SPDX-License-Identifier: Apache-2.0
"""Two tenants that share a pool, each with its own tokens and its own signing key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.error import HTTPError

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import flight
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.kube.cluster import SHARED, SIGNERS, Release
from tests.kube.jobs import SUM, total, tripled
from tests.kube.namespace import Namespace
from tests.kube.tenants import BLUE, CALLER, RED, TOKEN_FILE, Tenants
from tests.support.paths import connector_jar
from tests.support.spark import ENDPOINT, EXTENSION, runtime_confs
from tests.support.waiting import until
from tests.support.web import fetched
from updraft.protocol import TENANT_HEADER
from updraft_cli.commands.doctor import Doctor
from updraft_cli.doctor.finding import Finding, Level

_POOL = f"pool-{SHARED}"
_TENANT = "spark.updraft.udf.tenant"
_TASKS = 4
_PORT, _METRICS_PORT = 8815, 9825
_CALL_SECONDS = 60
# Longer than a kubelet takes on its own to update a changed ConfigMap in a pod.
_SYNCED_SECONDS = 180
_BATCH = pa.record_batch({"_0": pa.array(range(100), pa.int64())})
_UNKNOWN_KEY, _NOBODYS = "does not know the key that signed", "this pool accepts no signature"


@contextmanager
def _as(spark: SparkSession, release: Release, confs: Mapping[str, str]) -> Iterator[None]:
    """Let the session use the shared pool with these confs."""
    with runtime_confs(spark, {ENDPOINT: release.confs(_POOL)[ENDPOINT], **confs}):
        yield


def _endpoint(release: Release) -> str:
    """Return the address at which this machine reaches the pool."""
    return f"grpc://{release.cluster_ip(_POOL)}:{_PORT}"


@pytest.mark.parametrize("tenant", [RED, BLUE])
def test_each_tenant_runs_what_its_driver_has_signed(
    spark: SparkSession, release: Release, tenants: Tenants, tenant: str
) -> None:
    with _as(spark, release, tenants.confs(tenant, signs=tenant)):
        assert total(tripled(spark, _TASKS)) == SUM


@pytest.mark.parametrize(("token", "key"), [(BLUE, RED), (RED, BLUE)])
def test_a_tenants_key_signs_nothing_for_the_other(
    spark: SparkSession, release: Release, tenants: Tenants, token: str, key: str
) -> None:
    refusal = f"the exchange is of the tenant '{token}', for which this key may not sign"
    with _as(spark, release, tenants.confs(token, signs=key)), pytest.raises(Exception, match=refusal):
        total(tripled(spark, _TASKS))


def test_a_token_alone_introduces_no_code(spark: SparkSession, release: Release, tenants: Tenants) -> None:
    refusal = "only functions that their driver has signed"
    with _as(spark, release, tenants.confs(RED)), pytest.raises(Exception, match=refusal):
        total(tripled(spark, _TASKS))


def test_a_key_does_not_make_up_for_a_scope(spark: SparkSession, release: Release, tenants: Tenants) -> None:
    refusal = "it needs the scope session, but has call"
    with _as(spark, release, tenants.confs(CALLER, signs=RED)), pytest.raises(Exception, match=refusal):
        total(tripled(spark, _TASKS))


def test_registered_functions_take_the_scope_call_alone(release: Release, tenants: Tenants) -> None:
    findings = Doctor(
        endpoint=_endpoint(release), token_file=tenants.token_file(CALLER), timeout_seconds=_CALL_SECONDS
    ).findings()
    assert {finding.level for finding in findings} == {Level.OK}, findings
    assert _said(findings, "identity").found == f"'{CALLER}' of the tenant '{RED}', with the scopes call"
    assert "a worker returned" in _said(findings, "round trip").found


def test_a_session_cannot_name_the_other_tenant(spark: SparkSession, release: Release, tenants: Tenants) -> None:
    confs = {**tenants.confs(RED, signs=RED), _TENANT: BLUE}
    with _as(spark, release, confs), pytest.raises(Exception, match=f"cannot act for '{BLUE}'"):
        total(tripled(spark, _TASKS))


def test_a_call_cannot_name_the_other_tenant(release: Release, tenants: Tenants) -> None:
    assert _echoed(release, tenants, RED) == _BATCH
    with pytest.raises(flight.FlightUnauthorizedError, match=f"cannot act for '{BLUE}'"):
        _echoed(release, tenants, BLUE)


def _echoed(release: Release, tenants: Tenants, claimed: str) -> pa.RecordBatch:
    """Return a registered function's result for red, who claims to be of this tenant."""
    headers = [(b"authorization", f"Bearer {tenants.tokens[RED]}".encode()), (TENANT_HEADER.encode(), claimed.encode())]
    options = flight.FlightCallOptions(timeout=_CALL_SECONDS, headers=headers)
    with flight.FlightClient(_endpoint(release)) as client:
        exchange, replies = client.do_exchange(flight.FlightDescriptor.for_path("echo"), options)
        exchange.begin(_BATCH.schema)
        exchange.write_batch(_BATCH)
        exchange.done_writing()
        return replies.read_chunk().data


def test_a_doctor_says_which_key_a_tenant_may_use(release: Release, tenants: Tenants) -> None:
    def signature(key: str) -> Finding:
        confs = {
            "spark.jars": str(connector_jar()),
            "spark.sql.extensions": EXTENSION,
            ENDPOINT: _endpoint(release),
            **tenants.confs(RED, signs=key),
            TOKEN_FILE: str(tenants.token_file(RED)),
        }
        parts = [f"{name}={value}" for name, value in confs.items()]
        return _said(Doctor(conf=parts, timeout_seconds=_CALL_SECONDS).findings(), "signature")

    assert signature(RED).found == f"the pool knows the key as '{RED}-driver'"
    assert signature(BLUE).level is Level.ERROR
    assert "for which this key may not sign" in signature(BLUE).found


def _said(findings: Sequence[Finding], check: str) -> Finding:
    return next(finding for finding in findings if finding.check == check)


def test_no_worker_serves_both_tenants(spark: SparkSession, release: Release, tenants: Tenants) -> None:
    def marks(tenant: str) -> tuple[set[str], set[str]]:
        """Return the processes that served the tenant, and the marks of earlier exchanges in them."""

        def mark(numbers: pd.Series) -> pd.Series:
            import builtins
            import os

            found = vars(builtins).get("mark", "")
            vars(builtins)["mark"] = tenant
            return numbers.map(lambda _: f"{os.getpid()} {found}")

        frame = spark.range(0, 2 * _TASKS, 1, 2 * _TASKS).select(F.pandas_udf(mark, "string")("id").alias("told"))
        with _as(spark, release, tenants.confs(tenant, signs=tenant)):
            told = [row.told.split(" ") for row in frame.collect()]
        return {process for process, _ in told}, {found for _, found in told}

    processes, found = marks(RED)
    others, found_by_blue = marks(BLUE)
    _, found_later = marks(RED)
    # Red finds its own marks, because two workers serve eight exchanges.
    assert RED in found
    assert found | found_later <= {"", RED}
    assert found_by_blue <= {"", BLUE}
    assert not processes & others


@pytest.mark.parametrize("page", ["/metrics", "/status.json", "/status"])
def test_a_tenants_token_reads_neither_metrics_nor_status(release: Release, tenants: Tenants, page: str) -> None:
    """These pages name functions and errors of both tenants."""
    url = f"http://{release.pods(_POOL)[0].status.pod_ip}:{_METRICS_PORT}{page}"
    for token in ("", tenants.tokens[RED]):
        with pytest.raises(HTTPError, match="401"):
            fetched(url, token=token)
    assert fetched(url, token=tenants.observers_token)


def test_a_key_that_is_revoked_on_the_cluster_signs_nothing_more(
    spark: SparkSession, release: Release, namespace: Namespace, tenants: Tenants
) -> None:
    with _signers(spark, release, namespace, tenants, tenants.signers(RED)):
        until(
            "blue's key is revoked",
            lambda: _refusal(spark, release, tenants, BLUE) == _UNKNOWN_KEY,
            timeout_seconds=_SYNCED_SECONDS,
        )
        assert _refusal(spark, release, tenants, RED) == ""


def test_nobody_signs_while_the_file_of_signers_cannot_be_used(
    spark: SparkSession, release: Release, namespace: Namespace, tenants: Tenants
) -> None:
    with _signers(spark, release, namespace, tenants, {"signers.toml": "[[signer]"}):
        until(
            "the file is known to be unusable",
            lambda: _refusal(spark, release, tenants, RED) == _NOBODYS,
            timeout_seconds=_SYNCED_SECONDS,
        )
        assert _refusal(spark, release, tenants, BLUE) == _NOBODYS


@contextmanager
def _signers(
    spark: SparkSession, release: Release, namespace: Namespace, tenants: Tenants, files: dict[str, str]
) -> Iterator[None]:
    """Change the pool's ConfigMap for the block; afterwards both tenants may sign again."""
    namespace.change_config_map(SIGNERS, files)
    try:
        yield
    finally:
        namespace.change_config_map(SIGNERS, tenants.signers())
        until(
            "both keys count again",
            lambda: not any(_refusal(spark, release, tenants, tenant) for tenant in (RED, BLUE)),
            timeout_seconds=_SYNCED_SECONDS,
        )


def _refusal(spark: SparkSession, release: Release, tenants: Tenants, tenant: str) -> str:
    """Return why the pool refuses a tenant's signature now; empty if it accepts it."""
    release.sync_volumes(_POOL)
    with _as(spark, release, tenants.confs(tenant, signs=tenant)):
        try:
            rows = spark.range(0, 1, 1, 1).select(F.udf(lambda number: number + 1, "bigint")("id")).collect()
        except Exception as error:
            refusal = next((words for words in (_UNKNOWN_KEY, _NOBODYS) if words in str(error)), "")
            if not refusal:
                raise
            return refusal
    assert [tuple(row) for row in rows] == [(1,)]
    return ""
