# SPDX-License-Identifier: Apache-2.0
"""Unreachable pool or writer: the error says what was observed, and names the settings that decide."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.writer.written import FAILURES
from tests.support.pool import LocalPool
from tests.support.spark import ENABLED, ENDPOINT, executed_plan, runtime_confs, stock_operators

_UDF, _WRITE = "spark.updraft.udf", "spark.updraft.write"


@pytest.fixture(autouse=True)
def with_updraft(stock_only: bool) -> None:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")


Away = Callable[[], AbstractContextManager[tuple[str, str]]]
"""Endpoint that cannot be reached, and what is observed there."""


@contextmanager
def _refusing() -> Iterator[tuple[str, str]]:
    # Bound, so that no other process gets the port.
    with socket.socket() as unserved:
        unserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unserved.getsockname()[1]}"
        yield f"grpc://{address}", f"connection refused: nothing listens at {address}"


@contextmanager
def _dropping() -> Iterator[tuple[str, str]]:
    """Open a port whose queue of connections is full: the kernel drops the next one, as a firewall does."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting: list[socket.socket] = []
        try:
            while len(waiting) < 16:
                client = socket.socket()
                waiting.append(client)
                client.settimeout(0.5)
                client.connect(("127.0.0.1", port))
        except TimeoutError:
            yield f"grpc://127.0.0.1:{port}", f"no answer from 127.0.0.1:{port}"
        else:
            pytest.skip("this kernel's queue of connections has no end")
        finally:
            for client in waiting:
                client.close()


@contextmanager
def _unrouted() -> Iterator[tuple[str, str]]:
    # TCP has no route to a multicast address.
    yield "grpc://224.0.0.1:8815", "no route to 224.0.0.1:8815"


@contextmanager
def _unknown() -> Iterator[tuple[str, str]]:
    yield "grpc://no-such-host.invalid:8815", "name not found: no-such-host.invalid has no address"


@contextmanager
def _without_socket() -> Iterator[tuple[str, str]]:
    yield "grpc+unix:///no/such.sock", "there is no socket /no/such.sock"


_AWAY: Mapping[str, Away] = {
    "refused": _refusing,
    "dropped": _dropping,
    "no route": _unrouted,
    "unknown name": _unknown,
    "no socket": _without_socket,
}
away = pytest.mark.parametrize("place", _AWAY.values(), ids=_AWAY)


def _plus_one(spark: SparkSession) -> DataFrame:
    return spark.range(0, 10, 1, 1).select(F.udf(lambda x: x + 1, "bigint")("id").alias("x"))


def _confs(prefix: str, endpoint: str) -> dict[str, str]:
    return {
        ENABLED: "true",
        f"{prefix}.endpoint": endpoint,
        f"{prefix}.connectTimeout": "1s",
        f"{prefix}.acquireTimeout": "1s",
    }


@away
def test_a_pool_that_is_away_fails_with_what_was_seen_and_the_settings(spark: SparkSession, place: Away) -> None:
    with place() as (endpoint, seen):
        with runtime_confs(spark, _confs(_UDF, endpoint)), pytest.raises(FAILURES) as caught:
            _plus_one(spark).collect()
        assert (
            f"no pool answers at {endpoint} within 1.0 s ({_UDF}.connectTimeout): {seen}. Set {ENDPOINT} to the address"
            f" of the pool, or set {_UDF}.fallback = local"
        ) in str(caught.value)


@away
def test_what_was_seen_is_the_reason_of_a_fallback(spark: SparkSession, place: Away) -> None:
    with place() as (endpoint, seen), runtime_confs(spark, {**_confs(_UDF, endpoint), f"{_UDF}.fallback": "local"}):
        frame = _plus_one(spark)
        assert len(frame.collect()) == 10
        plan = executed_plan(frame)
    assert stock_operators(plan)
    assert f"{seen} (unreachable)" in plan


@away
def test_a_writer_that_is_away_fails_an_overwrite_with_what_was_seen(
    spark: SparkSession, tmp_path: Path, place: Away
) -> None:
    with place() as (endpoint, seen), runtime_confs(spark, _confs(_WRITE, endpoint)):
        with pytest.raises(FAILURES) as caught:
            spark.range(1).write.format("updraft-parquet").mode("overwrite").save(str(tmp_path / "data"))
        # Instead of the connection error, our own deadline may pass.
        words = {seen, f"the writer at {endpoint} did not answer within 1.0 s"}
        assert any(told in str(caught.value) for told in words), caught.value
        assert f"correct {_WRITE}.endpoint; the driver retries for 1.0 s ({_WRITE}.connectTimeout)" in str(caught.value)


@away
def test_a_writer_that_is_away_fails_tasks_with_what_was_seen(spark: SparkSession, tmp_path: Path, place: Away) -> None:
    with place() as (endpoint, seen), runtime_confs(spark, _confs(_WRITE, endpoint)):
        with pytest.raises(FAILURES) as caught:
            spark.range(1).write.format("updraft-parquet").mode("append").save(str(tmp_path / "data"))
        told = f"cannot reach a writer at {endpoint} within 1.0 s ({_WRITE}.connectTimeout); check that one listens"
        assert told in str(caught.value)
        assert f"({_WRITE}.endpoint): {seen}" in str(caught.value)


def test_a_pool_that_has_answered_before_is_waited_for_as_its_setting_says(spark: SparkSession) -> None:
    with LocalPool(workers=1) as pool:
        with runtime_confs(spark, {ENABLED: "true", ENDPOINT: pool.tcp_endpoint}):
            assert len(_plus_one(spark).collect()) == 10
        pool.stop()
        confs = {**_confs(_UDF, pool.tcp_endpoint), f"{_UDF}.acquireTimeout": "2s"}
        with runtime_confs(spark, confs), pytest.raises(FAILURES) as caught:
            _plus_one(spark).collect()
    text = str(caught.value)
    assert f"within 2.0 s ({_UDF}.acquireTimeout)" in text
    assert f"connection refused: nothing listens at {pool.tcp_address}" in text
    assert ENDPOINT in text
