# SPDX-License-Identifier: Apache-2.0
"""Tokens that are rotated while queries run: no query fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.pool import LocalPool
from tests.support.spark import ENABLED, ENDPOINT, runtime_confs
from tests.support.tokens import TokenFiles
from tests.support.waiting import until

_ROTATIONS = 20
_TOKEN_FILE = "spark.updraft.udf.tokenFile"


@pytest.fixture
def tokens(tmp_path: Path, stock_only: bool) -> TokenFiles:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    return TokenFiles(tmp_path)


@pytest.fixture
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that functions may write to, apart from the tokens."""
    return tmp_path_factory.mktemp("notes")


@pytest.fixture
def guarded(spark: SparkSession, tokens: TokenFiles, notes: Path) -> Iterator[LocalPool]:
    """Start a pool that reads its tokens from a file, and make the session read its own from another one."""
    with LocalPool(workers=2, notes=notes, arguments=["--token-file", str(tokens.service)]) as pool:
        confs = {ENABLED: "true", ENDPOINT: pool.tcp_endpoint, _TOKEN_FILE: str(tokens.client)}
        with runtime_confs(spark, confs):
            yield pool


def _plus_one(spark: SparkSession) -> list[int]:
    frame = spark.range(0, 8, 1, 4).select(F.udf(lambda x: x + 1, "bigint")("id").alias("x"))
    return sorted(row.x for row in frame.collect())


@pytest.mark.usefixtures("guarded")
def test_no_query_fails_while_tokens_are_rotated(spark: SparkSession, tokens: TokenFiles) -> None:
    rotated = threading.Event()

    def query() -> int:
        queries = 0
        while not rotated.is_set():
            assert _plus_one(spark) == list(range(1, 9))
            queries += 1
        return queries

    with ThreadPoolExecutor() as executor:
        answered = executor.submit(query)
        try:
            for _ in range(_ROTATIONS):
                # Every later call with a revoked token is refused.
                tokens.rotate()
                _plus_one(spark)
        finally:
            rotated.set()
        assert answered.result() > 0


@pytest.mark.usefixtures("guarded")
def test_an_exchange_that_is_open_goes_on_without_its_token(
    spark: SparkSession, tokens: TokenFiles, notes: Path
) -> None:
    begun, rotated = str(notes / "begun"), str(notes / "rotated")

    def waits(number: int) -> int:
        import pathlib
        import time

        pathlib.Path(begun).write_text("")
        while not pathlib.Path(rotated).exists():
            time.sleep(0.01)
        return number

    with ThreadPoolExecutor() as executor:
        answer = executor.submit(
            lambda: spark.range(0, 1, 1, 1).select(F.udf(waits, "bigint", useArrow=False)("id")).collect()
        )
        until("the function runs or has failed", lambda: Path(begun).exists() or answer.done())
        tokens.rotate()
        Path(rotated).touch()
        assert [row[0] for row in answer.result()] == [0]
