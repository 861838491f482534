# SPDX-License-Identifier: Apache-2.0
"""Two tenants with a pool and tokens each; one of the pools uses TLS."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.kube.cluster import SEALED, Release
from tests.kube.jobs import SUM, total, tripled
from tests.support.spark import runtime_confs
from tests.support.waiting import until

_TASKS = 4
_SECONDS = 180
_TOKEN_FILE = "spark.updraft.udf.tokenFile"
_POOLS = ("default", SEALED)


def _confs(release: Release, pool: str) -> dict[str, str]:
    """The confs that a running session can still change."""
    told = release.confs(f"pool-{pool}")
    return {conf: value for conf, value in told.items() if conf.startswith("spark.updraft.udf.")}


def test_a_tenants_pool_is_reached_by_tls_and_its_token(spark: SparkSession, release: Release) -> None:
    confs = _confs(release, SEALED)
    assert confs["spark.updraft.udf.endpoint"].startswith("grpc+tls://")
    with runtime_confs(spark, confs):
        assert total(tripled(spark, _TASKS)) == SUM


@pytest.mark.parametrize(("pool", "other"), [_POOLS, _POOLS[::-1]], ids=_POOLS)
def test_a_tenants_token_opens_no_other_pool(spark: SparkSession, release: Release, pool: str, other: str) -> None:
    confs = {**_confs(release, pool), _TOKEN_FILE: _confs(release, other)[_TOKEN_FILE]}
    with runtime_confs(spark, confs), pytest.raises(Exception, match="UNAUTHENTICATED"):
        total(tripled(spark, _TASKS))


def test_each_component_has_a_token_of_its_own(release: Release) -> None:
    assert release.token("pool-default") != release.token("writer")


def test_tokens_are_kept_when_the_release_is_upgraded(release: Release) -> None:
    components = ("pool-default", "writer")
    before = [release.token(component) for component in components]
    # An upgrade brings back what has been deleted.
    release.delete_token_jobs()
    release.upgrade(**{"writer.podDisruptionBudget.maxUnavailable": "2"})
    until("tokens have been looked for again", release.tokens_are_made, timeout_seconds=_SECONDS)
    assert [release.token(component) for component in components] == before
