# SPDX-License-Identifier: Apache-2.0
"""Sessions whose tokens are JSON Web Tokens of an issuer that the pool knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from issuing import Key, entry, key_set
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.pool import LocalPool
from tests.support.spark import ENABLED, ENDPOINT, runtime_confs

_TENANT = "spark.updraft.udf.tenant"
_TOKEN_FILE = "spark.updraft.udf.tokenFile"


class Issuer:
    """Published keys of the issuer, and the session's token."""

    def __init__(self, directory: Path) -> None:
        self.keys = directory / "keys.json"
        self.token = directory / "token"
        self.publish(Key("first"))
        self.identities = directory / "identities.toml"
        self.identities.write_text(entry(f'keys_file = "{self.keys}"'))

    def publish(self, key: Key) -> None:
        """Rotate the key, and give the session a token signed with it."""
        self.keys.write_bytes(key_set(key))
        self.key = key
        self.grant(scope="session")

    def grant(self, **claims: Any) -> None:
        beside = self.token.with_suffix(".new")
        beside.write_text(self.key.token(**claims))
        beside.replace(self.token)


@pytest.fixture
def issuer(tmp_path: Path, stock_only: bool) -> Issuer:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    return Issuer(tmp_path)


@pytest.fixture
def guarded(spark: SparkSession, issuer: Issuer) -> Iterator[LocalPool]:
    with LocalPool(workers=1, arguments=["--identities-file", str(issuer.identities)]) as pool:
        confs = {ENABLED: "true", ENDPOINT: pool.tcp_endpoint, _TOKEN_FILE: str(issuer.token)}
        with runtime_confs(spark, confs):
            yield pool


def _plus_one(spark: SparkSession) -> list[int]:
    frame = spark.range(0, 4, 1, 1).select(F.udf(lambda x: x + 1, "bigint")("id").alias("x"))
    return [row.x for row in frame.collect()]


@pytest.mark.usefixtures("guarded")
def test_a_session_runs_functions_as_its_tenant_with_a_token_that_is_renewed(
    spark: SparkSession, issuer: Issuer
) -> None:
    assert _plus_one(spark) == [1, 2, 3, 4]
    issuer.publish(Key("second"))
    with runtime_confs(spark, {_TENANT: "a"}):
        assert _plus_one(spark) == [1, 2, 3, 4]
    with runtime_confs(spark, {_TENANT: "b"}), pytest.raises(Exception, match="cannot act for 'b'"):
        _plus_one(spark)


@pytest.mark.usefixtures("guarded")
def test_a_session_hears_why_its_token_does_not_suffice(spark: SparkSession, issuer: Issuer) -> None:
    issuer.grant(scope="call")
    with pytest.raises(Exception, match="it needs the scope session, but has call"):
        _plus_one(spark)
    issuer.grant(scope="session", iat=1, exp=2)
    with pytest.raises(
        Exception, match=rf"the token has expired; put a token that the pool accepts into {issuer.token}"
    ):
        _plus_one(spark)
