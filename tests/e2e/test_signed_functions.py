# SPDX-License-Identifier: Apache-2.0
"""Sessions that sign what they ship, on a pool that runs nothing else; `--signed` runs the other tests so as well."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.applications.running import differences
from tests.e2e.jobs import JOBS
from tests.e2e.sides import Query, Sides
from tests.support.pool import LocalPool
from tests.support.signing import KEY_FILE, Signing, new_signing
from tests.support.spark import ENABLED, ENDPOINT, executed_plan, flight_operators, runtime_confs

_JOBS = [jobs[0] for jobs in JOBS.values()]


@pytest.fixture(scope="module")
def keys(stock_only: bool) -> Iterator[Signing]:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    with new_signing() as keys:
        yield keys


@pytest.fixture(scope="module")
def strict(keys: Signing) -> Iterator[LocalPool]:
    with keys.pool() as pool:
        yield pool


@pytest.fixture
def signing_sides(spark: SparkSession, strict: LocalPool, keys: Signing) -> Iterator[Sides]:
    with runtime_confs(spark, keys.confs):
        yield Sides(spark, {"tcp": strict.tcp_endpoint}, False)


def _plus_one(spark: SparkSession) -> DataFrame:
    return spark.range(0, 40, 1, 4).select(F.udf(lambda x: x + 1, "bigint")("id").alias("x"))


@pytest.mark.parametrize("job", _JOBS, ids=lambda job: job.__name__)
def test_a_signed_job_gives_what_it_gives_on_stock(signing_sides: Sides, job: Query) -> None:
    assert signing_sides.assert_same(job).rows


def test_rows_of_every_kind_of_value_are_read(signing_sides: Sides, table: Path) -> None:
    def described(spark: SparkSession) -> DataFrame:
        frame = spark.read.parquet(str(table))
        names = [field.name for field in frame.schema if "udt" not in field.name]
        tell = F.udf(lambda *values: repr(values), "string", useArrow=False)
        return frame.select(tell(*(F.col(name) for name in names)).alias("told"))

    assert signing_sides.assert_same(described).rows


def test_what_a_session_does_not_sign_is_refused(spark: SparkSession, strict: LocalPool) -> None:
    confs = {ENABLED: "true", ENDPOINT: strict.tcp_endpoint}
    with runtime_confs(spark, confs), pytest.raises(Exception, match=r"its driver has signed|their driver has signed"):
        _plus_one(spark).collect()


def test_a_key_that_the_pool_does_not_trust_opens_nothing(spark: SparkSession, strict: LocalPool) -> None:
    told = "does not know the key that signed the function"
    with new_signing() as stranger:
        confs = {ENABLED: "true", ENDPOINT: strict.tcp_endpoint, **stranger.confs}
        with runtime_confs(spark, confs), pytest.raises(Exception, match=told):
            _plus_one(spark).collect()


def test_a_key_that_is_missing_fails_the_query_and_names_the_setting(
    spark: SparkSession, strict: LocalPool, tmp_path: Path
) -> None:
    confs = {ENABLED: "true", ENDPOINT: strict.tcp_endpoint, KEY_FILE: str(tmp_path / "none")}
    with runtime_confs(spark, confs), pytest.raises(Exception, match=r"signingKeyFile.*the driver has no such file"):
        _plus_one(spark).collect()


def test_keys_are_replaced_between_queries(signing_sides: Sides, keys: Signing) -> None:
    assert signing_sides.assert_same(_plus_one).rows
    keys.replace_key()
    keys.trust()
    assert signing_sides.assert_same(_plus_one).rows


def test_workers_that_die_need_no_other_signature(signing_sides: Sides, strict: LocalPool) -> None:
    def slowly(spark: SparkSession) -> DataFrame:
        def slow(x: int) -> int:
            time.sleep(0.002)
            return x + 1

        return spark.range(0, 2000, 1, 2).select(F.udf(slow, "bigint")("id").alias("x"))

    victims = [worker.pid for worker in strict.workers()]
    os.kill(victims[0], signal.SIGKILL)
    assert len(signing_sides.assert_same(slowly).rows) == 2000


def test_one_function_is_revoked_by_its_digest(signing_sides: Sides, keys: Signing) -> None:
    assert signing_sides.assert_same(_plus_one).rows
    last = keys.opened()
    assert last["signer"] == "the-driver"
    keys.trust(revoked=last["functions"][0])
    try:
        refused = signing_sides.updraft(_plus_one)
        assert "a function was revoked on this pool" in str(refused.error)
    finally:
        keys.trust()


def test_an_artifact_that_the_driver_cannot_read_keeps_the_query_on_stock(signing_sides: Sides, tmp_path: Path) -> None:
    spark = signing_sides.spark
    pickled = spark.sparkContext.broadcast([1, 2, 3])
    look_up = F.udf(lambda x: pickled.value[x % 3], "bigint")
    confs = {ENABLED: "true", ENDPOINT: signing_sides.endpoints["tcp"], "spark.updraft.udf.fallback": "local"}
    Path(pickled._path).unlink()
    with runtime_confs(spark, confs):
        frame = spark.range(3).select(look_up("id"))
        plan = executed_plan(frame)
    assert not flight_operators(plan)
    assert "broadcast variable" in plan


def _differences(keys: Signing, application: str) -> Mapping[str, str]:
    with keys.pool() as pool:
        return differences(application, pool.tcp_endpoint, confs=keys.confs)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("application", ["artifacts", "connect"])
def test_what_travels_with_a_function_is_signed_too(keys: Signing, application: str) -> None:
    found = _differences(keys, application)
    assert found
    assert {case: differs for case, differs in found.items() if differs} == {}
