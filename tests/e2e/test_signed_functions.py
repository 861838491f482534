# SPDX-License-Identifier: Apache-2.0
"""Functions that a driver has signed, on a pool that runs no others: each kind, with its artifacts, and replayed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import SparkFiles
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window
from signing import Driver

from tests.e2e.applications.running import differences
from tests.e2e.sides import Query, Sides
from tests.support.paths import REPOSITORY
from tests.support.pool import LocalPool
from tests.support.signing import KEY_FILE, Signing, new_signing
from tests.support.spark import ENABLED, ENDPOINT, SHORT_LIVED_JVM, executed_plan, runtime_confs
from tests.support.waiting import until

_LIFETIME = "spark.updraft.udf.signatureLifetime"
_FALLBACK = "spark.updraft.udf.fallback"
_ROWS = 64


@pytest.fixture(scope="module")
def signer(stock_only: bool) -> Iterator[Signing]:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    with new_signing() as signer:
        yield signer


@pytest.fixture(scope="module")
def signing_pool(signer: Signing) -> Iterator[LocalPool]:
    with signer.pool() as pool:
        yield pool
        print(pool.log())


@pytest.fixture
def signed(spark: SparkSession, signing_pool: LocalPool, signer: Signing) -> Sides:
    """Return both sides, ours on the pool that requires signatures."""
    return Sides(spark, {"tcp": signing_pool.tcp_endpoint, "unix": signing_pool.unix_endpoint}, False)


def _numbers(spark: SparkSession) -> DataFrame:
    return spark.range(0, _ROWS, 1, 2).withColumn("key", F.col("id") % 3)


def _pickled(spark: SparkSession) -> DataFrame:
    function = F.udf(lambda pair: (str(pair.key), pair.id + 1), "text string, number int")
    return _numbers(spark).select(function(F.struct("id", "key")).alias("made"))


def _doubled(numbers: pd.Series) -> pd.Series:
    return numbers * 2


def _mean(numbers: pd.Series) -> float:
    return float(numbers.mean())


def _batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _counted(group: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"rows": [len(group)]})


def _both(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"left": [len(left)], "right": [int(right["other"].sum())]})


class _Squares:
    def eval(self, row: Row) -> Iterator[tuple[int, int]]:
        yield row["id"], row["id"] ** 2


def _cogrouped(spark: SparkSession) -> DataFrame:
    other = _numbers(spark).withColumn("other", F.col("id") * 2).drop("id")
    groups = _numbers(spark).groupBy("key").cogroup(other.groupBy("key"))
    return groups.applyInPandas(_both, "left bigint, right bigint").orderBy("left", "right")


def _windowed(spark: SparkSession) -> DataFrame:
    mean = F.pandas_udf(_mean, "double")("id").over(Window.partitionBy("key"))
    return _numbers(spark).select("id", mean.alias("mean")).orderBy("id")


_KINDS: Mapping[str, Query] = {
    "pickled udf": _pickled,
    "udf over Arrow": lambda spark: _numbers(spark).select(F.udf(lambda n: n + 1, "bigint", useArrow=True)("id")),
    "pandas_udf": lambda spark: _numbers(spark).select(F.pandas_udf(_doubled, "bigint")("id")),
    "mapInArrow": lambda spark: _numbers(spark).mapInArrow(_batches, "id bigint, key bigint"),
    "applyInPandas": lambda spark: _numbers(spark).groupBy("key").applyInPandas(_counted, "rows bigint"),
    "cogrouped": _cogrouped,
    "aggregate": lambda spark: _numbers(spark).groupBy("key").agg(F.pandas_udf(_mean, "double")("id")).orderBy("key"),
    "window": _windowed,
    "udtf": lambda spark: F.udtf(_Squares, returnType="number bigint, square bigint")(
        _numbers(spark).asTable()
    ).orderBy("number"),
}


@pytest.mark.one_of_each
@pytest.mark.parametrize("kind", _KINDS)
def test_a_signed_function_of_each_kind_gives_what_it_gives_on_stock(signed: Sides, signer: Signing, kind: str) -> None:
    signed.assert_same(_KINDS[kind], confs=signer.confs)


def test_rows_of_every_kind_of_value_are_read(signed: Sides, signer: Signing, table: Path) -> None:
    def described(spark: SparkSession) -> DataFrame:
        frame = spark.read.parquet(str(table))
        # The class of a user-defined type is not signed with the rows.
        names = [field.name for field in frame.schema if "udt" not in field.name]
        tell = F.udf(lambda *values: repr(values), "string", useArrow=False)
        return frame.select(tell(*(F.col(name) for name in names)).alias("told"))

    assert signed.assert_same(described, confs=signer.confs).rows


@pytest.mark.timeout(300)
def test_a_signed_function_finds_its_artifacts_wherever_it_runs(signing_pool: LocalPool, signer: Signing) -> None:
    cluster = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "512m"}
    # Executors of Spark 3.5 start the driver's daemon for stock workers, and that daemon is part of the tests.
    cluster["spark.executorEnv.PYTHONPATH"] = str(REPOSITORY)
    confs = {**signer.confs, **cluster, "spark.executor.extraJavaOptions": SHORT_LIVED_JVM}
    found = differences("artifacts", signing_pool.tcp_endpoint, *(f"{key}={value}" for key, value in confs.items()))
    assert "addArchive, udf" in found
    # An executor of a cluster keeps other files in that directory.
    assert not {case: text for case, text in found.items() if text and not case.startswith("directory of files")}


@pytest.mark.timeout(300)
def test_a_connect_server_signs_for_each_of_its_sessions(signing_pool: LocalPool, signer: Signing) -> None:
    found = differences("connect", signing_pool.tcp_endpoint, f"{KEY_FILE}={signer.key_file}")
    assert found
    assert not {case: text for case, text in found.items() if text}


def test_a_session_without_a_key_is_told_what_to_set(signed: Sides) -> None:
    # This session has not used that endpoint, so the driver asks for the pool's capabilities.
    answer = signed.updraft(_KINDS["pandas_udf"], transport="unix")
    told = "the pool runs only functions that their driver has signed. Set spark.updraft.udf.signingKeyFile"
    assert told in str(answer.error)


def test_a_session_without_a_key_stays_local_if_it_may(signed: Sides) -> None:
    answer = signed.updraft(_KINDS["pandas_udf"], confs={_FALLBACK: "local"})
    assert answer.error is None
    assert "(unsigned)" in answer.plan
    assert list(answer.rows) == list(signed.stock(_KINDS["pandas_udf"]).rows)


def test_a_signature_that_holds_for_longer_than_its_signer_may_sign_is_refused(signed: Sides, signer: Signing) -> None:
    answer = signed.updraft(_KINDS["pandas_udf"], confs={**signer.confs, _LIFETIME: "8d"})
    assert "lower spark.updraft.udf.signatureLifetime" in str(answer.error)


def test_an_artifact_that_the_driver_cannot_read_keeps_the_function_on_stock(
    signed: Sides, signer: Signing, spark: SparkSession, tmp_path: Path
) -> None:
    name = "gone.txt"
    (tmp_path / name).write_text("text")
    spark.sparkContext.addFile(str(tmp_path / name))
    here = Path(SparkFiles.get(name))
    kept = here.rename(tmp_path / "kept.txt")
    try:
        answer = signed.updraft(_KINDS["pandas_udf"], confs=signer.confs)
    finally:
        kept.rename(here)
    assert answer.error is None
    assert f"file {name}: " in answer.plan
    assert "(unsigned-artifact)" in answer.plan
    assert list(answer.rows) == list(signed.stock(_KINDS["pandas_udf"]).rows)


def test_a_plan_that_runs_again_is_signed_by_the_key_that_is_there_then(
    signed: Sides, signer: Signing, spark: SparkSession
) -> None:
    with runtime_confs(spark, {ENABLED: "true", ENDPOINT: signed.endpoints["tcp"], **signer.confs}):
        frame = _KINDS["pandas_udf"](spark)
        first = frame.collect()
        assert "Flight" in executed_plan(frame)
        old, new = signer.driver, Driver("another")
        try:
            signer.sign_as(new)
            signer.trust(new)
            # The pool rereads its key file every second; until the next read, it knows only the first key.
            assert until("the pool knows the new key", lambda: _collected(frame)) == first
        finally:
            signer.sign_as(old)
            signer.trust(old)
        assert until("the pool knows the old key", lambda: _collected(frame)) == first


def _collected(frame: DataFrame) -> list[Row] | None:
    try:
        rows: list[Row] = frame.collect()
    except Exception as error:
        if "does not know the key" in str(error):
            return None
        raise
    return rows


def test_a_replay_on_another_worker_needs_no_new_signature(signed: Sides, signer: Signing, tmp_path: Path) -> None:
    struck = tmp_path / "struck"

    def dies_once(numbers: pd.Series) -> pd.Series:
        if numbers.max() >= _ROWS // 2 and not struck.exists():
            struck.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return numbers + 1

    def query(spark: SparkSession) -> DataFrame:
        return spark.range(0, _ROWS, 1, 1).select(F.pandas_udf(dies_once, "bigint")("id").alias("x"))

    confs = {**signer.confs, "spark.sql.execution.arrow.maxRecordsPerBatch": "4", "spark.updraft.udf.batchBytes": "1k"}
    answer = signed.updraft(query, confs=confs)
    assert answer.error is None, answer.error
    assert [row[0] for row in answer.rows] == list(range(1, _ROWS + 1))
    assert struck.exists()


def test_one_function_is_revoked_by_its_digest(signed: Sides, signer: Signing) -> None:
    query = _KINDS["pandas_udf"]
    signed.assert_same(query, confs=signer.confs)
    (digest,) = signer.opened()["functions"]
    signer.trust(signer.driver, revoked=digest)
    try:
        refused = signed.updraft(query, confs=signer.confs)
        assert f"a function was revoked on this pool: {digest}" in str(refused.error)
        assert signed.updraft(_KINDS["mapInArrow"], confs=signer.confs).error is None
    finally:
        signer.trust(signer.driver)
