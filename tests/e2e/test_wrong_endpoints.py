# SPDX-License-Identifier: Apache-2.0
"""Endpoint at which something else listens than the setting says: the error names what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.writer.written import FAILURES
from tests.support.certificates import Authority
from tests.support.pool import LocalPool
from tests.support.service import LocalService
from tests.support.spark import ENABLED, ENDPOINT, executed_plan, runtime_confs, stock_operators
from tests.support.writer import LocalWriter

_WRITE_ENDPOINT = "spark.updraft.write.endpoint"


@pytest.fixture(autouse=True, scope="module")
def with_a_pool(stock_only: bool) -> None:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("written")


@pytest.fixture(scope="module")
def writer(root: Path) -> Iterator[LocalWriter]:
    with LocalWriter(root) as writer:
        yield writer


@pytest.fixture(scope="module")
def with_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    identity = Authority(tmp_path_factory.mktemp("tls") / "ours").identity("127.0.0.1")
    files = ["--tls-certificate-file", str(identity.certificate), "--tls-key-file", str(identity.key)]
    with LocalPool(workers=1, arguments=files) as pool:
        yield pool


def _plus_one(spark: SparkSession) -> DataFrame:
    return spark.range(0, 10, 1, 1).select(F.udf(lambda x: x + 1, "bigint")("id").alias("x"))


def _refused(spark: SparkSession, endpoint: str) -> str:
    """Return the error of a query that needs a pool at the endpoint."""
    with runtime_confs(spark, {ENABLED: "true", ENDPOINT: endpoint}), pytest.raises(FAILURES) as caught:
        _plus_one(spark).collect()
    return str(caught.value)


def _not_written(spark: SparkSession, endpoint: str, path: Path, mode: str) -> str:
    """Return the error of a write; the driver checks before it overwrites, and tasks find out when they append."""
    confs = {_WRITE_ENDPOINT: endpoint, "spark.updraft.write.connectTimeout": "1s"}
    with runtime_confs(spark, confs), pytest.raises(FAILURES) as caught:
        spark.range(1).write.format("updraft-parquet").mode(mode).save(str(path))
    assert not list(path.rglob("part-*"))
    return str(caught.value)


def _tls_on_one_side(service: LocalService, uses: str, wrong: str, right: str, setting: str) -> str:
    address = service.tcp_address
    return f"only one side uses TLS: {address} {uses} TLS, but {setting} = {wrong}://{address}; use {right}://{address}"


Where = Callable[[LocalPool, LocalWriter, LocalPool], tuple[str, str]]
"""Endpoint, and what the error says about it."""

_OF_A_POOL: Mapping[str, Where] = {
    "writer": lambda pool, writer, tls: (writer.tcp_endpoint, f"{writer.tcp_address} is a writer, not a pool"),
    "writer by its socket": lambda pool, writer, tls: (
        writer.unix_endpoint,
        f"{writer.unix_socket} is a writer, not a pool",
    ),
    "metrics": lambda pool, writer, tls: (
        f"grpc://{pool.metrics_address}",
        f"{pool.metrics_address} is not a pool: it speaks HTTP/1, like a metrics port",
    ),
    "metrics by TLS": lambda pool, writer, tls: (
        f"grpc+tls://{pool.metrics_address}",
        f"{pool.metrics_address} is not a pool: it speaks HTTP/1, like a metrics port",
    ),
    "admin": lambda pool, writer, tls: (
        f"grpc://{pool.admin_address}",
        f"{pool.admin_address} is not a pool: it answers only health checks, like an admin port",
    ),
    "TLS there": lambda pool, writer, tls: (
        f"grpc://{tls.tcp_address}",
        _tls_on_one_side(tls, "uses", "grpc", "grpc+tls", ENDPOINT),
    ),
    "TLS here": lambda pool, writer, tls: (
        f"grpc+tls://{pool.tcp_address}",
        _tls_on_one_side(pool, "does not use", "grpc+tls", "grpc", ENDPOINT),
    ),
}

_OF_A_WRITER: Mapping[str, Where] = {
    "pool": lambda pool, writer, tls: (pool.tcp_endpoint, f"{pool.tcp_address} is a pool, not a writer"),
    "metrics": lambda pool, writer, tls: (
        f"grpc://{writer.metrics_address}",
        f"{writer.metrics_address} is not a writer: it speaks HTTP/1, like a metrics port",
    ),
    "admin": lambda pool, writer, tls: (
        f"grpc://{writer.admin_address}",
        f"{writer.admin_address} is not a writer: it answers only health checks, like an admin port",
    ),
    "TLS there": lambda pool, writer, tls: (
        f"grpc://{tls.tcp_address}",
        _tls_on_one_side(tls, "uses", "grpc", "grpc+tls", _WRITE_ENDPOINT),
    ),
    "TLS here": lambda pool, writer, tls: (
        f"grpc+tls://{writer.tcp_address}",
        _tls_on_one_side(writer, "does not use", "grpc+tls", "grpc", _WRITE_ENDPOINT),
    ),
}


@pytest.mark.parametrize("where", _OF_A_POOL.values(), ids=_OF_A_POOL)
def test_what_is_no_pool_is_named_for_what_it_is(
    spark: SparkSession, pool: LocalPool, writer: LocalWriter, with_tls: LocalPool, where: Where
) -> None:
    endpoint, told = where(pool, writer, with_tls)
    error = _refused(spark, endpoint)
    assert f"{told}. Set {ENDPOINT} to the address of the pool, or set spark.updraft.udf.fallback = local" in error
    # The driver's own error, before there is a task.
    assert "Job aborted" not in error


def test_what_is_no_pool_is_a_reason_to_fall_back(spark: SparkSession, writer: LocalWriter) -> None:
    confs = {ENABLED: "true", ENDPOINT: writer.tcp_endpoint, "spark.updraft.udf.fallback": "local"}
    with runtime_confs(spark, confs):
        frame = _plus_one(spark)
        assert len(frame.collect()) == 10
        plan = executed_plan(frame)
    assert stock_operators(plan)
    assert f"{writer.tcp_address} is a writer, not a pool (unreachable)" in plan


@pytest.mark.parametrize("mode", ["overwrite", "append"])
@pytest.mark.parametrize("where", _OF_A_WRITER.values(), ids=_OF_A_WRITER)
def test_what_is_no_writer_is_named_for_what_it_is(
    spark: SparkSession,
    pool: LocalPool,
    writer: LocalWriter,
    with_tls: LocalPool,
    root: Path,
    where: Where,
    mode: str,
) -> None:
    endpoint, told = where(pool, writer, with_tls)
    error = _not_written(spark, endpoint, root / "refused", mode)
    assert told in error
    assert f"Set {_WRITE_ENDPOINT} to " in error
