# SPDX-License-Identifier: Apache-2.0
"""Session that reaches its pool over TLS with a token: the right answer, or an error that names the setting."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.certificates import Authority, Identity
from tests.support.pool import LocalPool
from tests.support.spark import ENABLED, ENDPOINT, executed_plan, flight_operators, runtime_confs

_CA = "spark.updraft.udf.tls.caFile"
_CERTIFICATE = "spark.updraft.udf.tls.certificateFile"
_KEY = "spark.updraft.udf.tls.keyFile"
_TOKEN_FILE = "spark.updraft.udf.tokenFile"
_CONNECT_TIMEOUT = {"spark.updraft.udf.connectTimeout": "2s"}


class Files:
    """Files that a test's pool and sessions read."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "ours")
        self.server = self.authority.identity("127.0.0.1")
        self.tokens = _written(directory / "tokens", "the-right-one\n")

    @property
    def server_options(self) -> list[str]:
        return ["--tls-certificate-file", str(self.server.certificate), "--tls-key-file", str(self.server.key)]


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, stock_only: bool) -> Files:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def guarded(files: Files) -> Iterator[LocalPool]:
    with LocalPool(workers=1, arguments=[*files.server_options, "--token-file", str(files.tokens)]) as pool:
        yield pool


@pytest.fixture(scope="module")
def mutual(files: Files) -> Iterator[LocalPool]:
    arguments = [*files.server_options, "--tls-client-ca-file", str(files.authority.certificate)]
    with LocalPool(workers=1, arguments=arguments) as pool:
        yield pool


def _answer(spark: SparkSession, endpoint: str, confs: Mapping[str, Path | str]) -> list[int]:
    texts = {key: str(value) for key, value in confs.items()}
    with runtime_confs(spark, {ENABLED: "true", ENDPOINT: endpoint, **texts}):
        frame = spark.range(0, 10, 1, 1).select(F.udf(lambda x: x + 1, "bigint")("id").alias("x"))
        assert flight_operators(executed_plan(frame))
        return [row.x for row in frame.collect()]


def _tls(pool: LocalPool) -> str:
    return f"grpc+tls://{pool.tcp_address}"


def test_functions_run_over_tls_with_a_token(spark: SparkSession, guarded: LocalPool, files: Files) -> None:
    confs = {_CA: files.authority.certificate, _TOKEN_FILE: files.tokens}
    assert _answer(spark, _tls(guarded), confs) == list(range(1, 11))


def test_functions_run_over_mutual_tls(spark: SparkSession, mutual: LocalPool, files: Files) -> None:
    executor = files.authority.identity("executor")
    confs = {_CA: files.authority.certificate, _CERTIFICATE: executor.certificate, _KEY: executor.key}
    assert _answer(spark, _tls(mutual), confs) == list(range(1, 11))


def test_a_renewed_certificate_is_used_without_a_restart(
    spark: SparkSession, mutual: LocalPool, files: Files, tmp_path: Path
) -> None:
    expired = files.authority.identity("expired", not_after=datetime.now(UTC) - timedelta(hours=1))
    certificate, key = tmp_path / "client.pem", tmp_path / "client.key"
    confs: dict[str, Path | str] = {_CA: files.authority.certificate, _CERTIFICATE: certificate, _KEY: key}
    _install(expired, certificate, key)
    with pytest.raises(Exception, match=re.escape(_CERTIFICATE)):
        _answer(spark, _tls(mutual), {**confs, **_CONNECT_TIMEOUT})
    _install(files.authority.identity("renewed"), certificate, key)
    assert _answer(spark, _tls(mutual), confs) == list(range(1, 11))


def _install(identity: Identity, certificate: Path, key: Path) -> None:
    for source, target in ((identity.certificate, certificate), (identity.key, key)):
        beside = target.with_suffix(".new")
        beside.write_bytes(source.read_bytes())
        beside.replace(target)
