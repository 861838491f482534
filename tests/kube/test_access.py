# SPDX-License-Identifier: Apache-2.0
"""Two tenants, each with its own pool and token, and a writer; one of the pools uses TLS."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kube.cluster import SEALED, Release
from tests.kube.executors import ABSENT
from tests.kube.jobs import SUM, total, tripled
from tests.kube.tenants import RED, TOKEN_FILE, Tenants
from tests.support.spark import runtime_confs
from tests.support.waiting import until

_TASKS, _DOCTOR_SECONDS, _JOB_SECONDS = 4, 60, 180
_WRITERS_TOKEN_FILE = "spark.updraft.write.tokenFile"
_POOLS = ("default", SEALED)


def _confs(release: Release, pool: str) -> dict[str, str]:
    """Return the confs that a running session can still change."""
    told = release.confs(f"pool-{pool}")
    return {conf: value for conf, value in told.items() if conf.startswith("spark.updraft.udf.")}


def test_a_tenants_pool_is_reached_by_tls_and_its_token(spark: SparkSession, release: Release) -> None:
    confs = _confs(release, SEALED)
    assert confs["spark.updraft.udf.endpoint"].startswith("grpc+tls://")
    with runtime_confs(spark, confs):
        assert total(tripled(spark, _TASKS)) == SUM


def test_a_job_whose_secret_is_missing_fails_with_its_file(spark: SparkSession, release: Release) -> None:
    file = str(release.mounts / ABSENT / "token")
    confs = {**_confs(release, "default"), TOKEN_FILE: file}
    missing = rf'{re.escape(TOKEN_FILE)} = "{file}": .*NoSuchFileException'
    with runtime_confs(spark, confs), pytest.raises(Exception, match=missing):
        total(tripled(spark, _TASKS))


@pytest.mark.parametrize(("pool", "other"), [_POOLS, _POOLS[::-1]], ids=_POOLS)
def test_a_tenants_token_opens_no_other_pool(spark: SparkSession, release: Release, pool: str, other: str) -> None:
    confs = {**_confs(release, pool), TOKEN_FILE: _confs(release, other)[TOKEN_FILE]}
    with runtime_confs(spark, confs), pytest.raises(Exception, match="UNAUTHENTICATED"):
        total(tripled(spark, _TASKS))


@pytest.mark.parametrize("pool", _POOLS)
def test_a_pools_token_does_not_open_the_writer(spark: SparkSession, release: Release, tables: Path, pool: str) -> None:
    files = tables / f"refused-{pool}"
    confs = {_WRITERS_TOKEN_FILE: _confs(release, pool)[TOKEN_FILE]}
    with runtime_confs(spark, confs), pytest.raises(Exception, match="UNAUTHENTICATED"):
        spark.range(_TASKS).write.format("updraft-parquet").save(str(files))
    assert not list(files.rglob("part-*"))


@pytest.mark.parametrize("pool", _POOLS)
def test_the_writers_token_opens_no_pool(spark: SparkSession, release: Release, pool: str) -> None:
    confs = {**_confs(release, pool), TOKEN_FILE: release.confs("writer")[_WRITERS_TOKEN_FILE]}
    with runtime_confs(spark, confs), pytest.raises(Exception, match="UNAUTHENTICATED"):
        total(tripled(spark, _TASKS))


def test_the_doctor_explains_what_is_wrong_with_the_token_of_another_pool(release: Release, tenants: Tenants) -> None:
    updraft, endpoint = Path(sys.executable).with_name("updraft"), f"grpc://{release.cluster_ip('pool-default')}:8815"
    command = [str(updraft), "doctor", "--endpoint", endpoint, "--token-file", str(tenants.token_file(RED))]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_DOCTOR_SECONDS, check=False)
    assert ran.returncode == 1, ran.stderr
    assert "the token is not one that this service knows" in ran.stdout
    assert "set tokenFile to a file with the service's token" in ran.stdout


def test_each_component_has_a_token_of_its_own(release: Release) -> None:
    assert release.token("pool-default") != release.token("writer")


def test_tokens_are_kept_when_the_release_is_upgraded(release: Release) -> None:
    components = ("pool-default", "writer")
    before = [release.token(component) for component in components]
    # An upgrade restores what has been deleted.
    release.delete_token_jobs()
    release.upgrade(**{"writer.podDisruptionBudget.maxUnavailable": "2"})
    until("tokens have been looked for again", release.tokens_are_made, timeout_seconds=_JOB_SECONDS)
    assert [release.token(component) for component in components] == before


def test_the_secret_of_a_removed_pool_is_removed(release: Release) -> None:
    release.upgrade(**{"pools.gone.replicas": "0"})
    until("the Job has made its Secret", lambda: release.has_secret("pool-gone"), timeout_seconds=_JOB_SECONDS)
    release.upgrade()
    until("Kubernetes has removed it", lambda: not release.has_secret("pool-gone"), timeout_seconds=_JOB_SECONDS)
    assert release.has_secret("pool-default")
