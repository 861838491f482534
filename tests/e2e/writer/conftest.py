# SPDX-License-Identifier: Apache-2.0
"""Writer for all of these tests; anything that it cannot do like Spark is an error here, never a silent fallback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.spark import runtime_confs
from tests.support.writer import LocalWriter

ENDPOINT = "spark.updraft.write.endpoint"
DELIVERY = "spark.updraft.write.delivery"
UNSUPPORTED = "spark.updraft.write.unsupported"


@pytest.fixture(scope="session", autouse=True)
def skip_stock_only(stock_only: bool) -> None:
    if stock_only:
        pytest.skip("these tests are about Updraft alone")


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the only directory that the writer may write to."""
    return tmp_path_factory.mktemp("written")


@pytest.fixture(scope="session")
def writer(root: Path) -> Iterator[LocalWriter]:
    with LocalWriter(root, arguments=["--quota-bytes", str(256 << 20)]) as writer:
        yield writer
        # pytest shows it if the test failed.
        print(writer.log())


@pytest.fixture(autouse=True)
def with_the_writer(spark: SparkSession, writer: LocalWriter) -> Iterator[None]:
    """Let every test write through the writer, and check that it leaves nothing there."""
    with runtime_confs(spark, {ENDPOINT: writer.tcp_endpoint, UNSUPPORTED: "fail"}):
        yield
    writer.becomes_empty()


@pytest.fixture
def place(root: Path, request: pytest.FixtureRequest) -> Path:
    """Make a directory below the root for one test."""
    directory: Path = root / request.node.name.translate(str.maketrans("[]/= ", "_____"))
    directory.mkdir()
    return directory
