# SPDX-License-Identifier: Apache-2.0
"""A row larger than a message reaches a function or a file, and so does its result, as on stock."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.e2e.applications.large_rows import KINDS, WRITE, large_text
from tests.e2e.applications.running import differences
from tests.support.pool import NOTES, LocalPool
from tests.support.spark import ENABLED, ENDPOINT, runtime_confs
from tests.support.writer import LocalWriter

_MIB = 1 << 20
# Larger than the 64 MiB of a message.
_BYTES = 70 * _MIB
# `make test-large-rows` tries every case with the largest promised rows; each takes minutes.
_PROMISED_BYTES = int(os.environ.get("UPDRAFT_LARGE_ROW_MIB", "0")) * _MIB
_CASES = [*KINDS, WRITE] if _PROMISED_BYTES else ["arrow-optimized", WRITE]
_SECONDS = 3600 if _PROMISED_BYTES else 600
# Memory that the guides recommend for workers.
_WORKER_BYTES = 4 << 30


@pytest.fixture(scope="module", autouse=True)
def about_updraft(stock_only: bool) -> None:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    place = tmp_path_factory.mktemp("large-rows")
    limits = ["--worker-memory-bytes", str(_WORKER_BYTES)]
    with LocalPool(workers=1, notes=NOTES, arguments=limits) as pool, LocalWriter(place) as writer:
        endpoints = (pool.tcp_endpoint, writer.tcp_endpoint)
        text_bytes = str(_PROMISED_BYTES or _BYTES)
        arguments = (*endpoints, str(place), text_bytes, *_CASES)
        return differences("large_rows", *arguments, timeout_seconds=_SECONDS - 20)


@pytest.mark.timeout(_SECONDS)
@pytest.mark.parametrize("case", _CASES)
def test_a_row_larger_than_a_message_travels_both_ways(found: Mapping[str, str], case: str) -> None:
    assert found[case] == ""


def _error(spark: SparkSession, *arguments: str) -> str:
    function = F.udf(lambda text: text, "string", useArrow=True)
    rows = spark.range(1).select(large_text(_BYTES).alias("t"))
    with LocalPool(workers=1, notes=NOTES, arguments=arguments) as pool:
        confs = {ENABLED: "true", ENDPOINT: pool.tcp_endpoint}
        with runtime_confs(spark, confs), pytest.raises(Exception, match="batch") as caught:
            rows.select(F.length(function("t"))).collect()
    return str(caught.value)


def test_a_row_that_a_worker_has_no_memory_for_names_the_setting(spark: SparkSession) -> None:
    error = _error(spark, "--worker-memory-bytes", str(400 * _MIB))
    assert f"the limit is {66 * _MIB}" in error
    assert "raise --worker-memory-bytes of the pool to 8 times the batch" in error


def test_a_row_beyond_what_the_pool_takes_names_the_setting(spark: SparkSession) -> None:
    error = _error(spark, "--max-batch-bytes", str(65 * _MIB))
    assert f"the limit is {65 * _MIB}" in error
    assert "raise --max-batch-bytes of the pool" in error
