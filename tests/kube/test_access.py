# SPDX-License-Identifier: Apache-2.0
"""Two tenants with a pool each: own tokens, and for one of them TLS."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.kube.cluster import SEALED, Release
from tests.kube.executors import SEALED_FILES, TOKEN_FILE
from tests.kube.jobs import SUM, total, tripled
from tests.support.spark import ENDPOINT, runtime_confs

_TASKS = 4
_TOKEN_FILE = "spark.updraft.udf.tokenFile"
_CA_FILE = "spark.updraft.udf.tls.caFile"


def _sealed(release: Release) -> dict[str, str]:
    return {ENDPOINT: f"grpc+tls://{release.host(f'pool-{SEALED}')}:8815", _CA_FILE: f"{SEALED_FILES}/ca.crt"}


def test_a_tenants_pool_is_reached_by_tls_and_its_token(spark: SparkSession, release: Release) -> None:
    with runtime_confs(spark, {**_sealed(release), _TOKEN_FILE: f"{SEALED_FILES}/token"}):
        assert total(tripled(spark, _TASKS)) == SUM


@pytest.mark.parametrize("pool", ["default", SEALED])
def test_a_tenants_token_opens_no_other_pool(spark: SparkSession, release: Release, pool: str) -> None:
    other = (
        {_TOKEN_FILE: f"{SEALED_FILES}/token"} if pool == "default" else {**_sealed(release), _TOKEN_FILE: TOKEN_FILE}
    )
    with runtime_confs(spark, other), pytest.raises(Exception, match="UNAUTHENTICATED"):
        total(tripled(spark, _TASKS))


def test_the_token_is_kept_when_the_release_is_upgraded(release: Release) -> None:
    before = release.token()
    release.upgrade(**{"writer.settings.bypassSeconds": "4"})
    assert release.token() == before
