# SPDX-License-Identifier: Apache-2.0
"""Pool shared by all contract tests; it must survive every one of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.flight import echo_command, exchange, whole_request
from tests.support.paths import BUILD, REPOSITORY
from tests.support.pool import LocalPool

MAX_MESSAGE_BYTES = 2 << 20
MAVEN_TIMEOUT_SECONDS = 300
_MAVEN = REPOSITORY / "spark-connector/mvnw"


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalPool]:
    with LocalPool(workers=2, arguments=["--max-message-bytes", str(MAX_MESSAGE_BYTES)]) as pool:
        yield pool
        # pytest shows it if the test failed.
        print(pool.log())


@pytest.fixture
def address(pool: LocalPool) -> str:
    return pool.tcp_address


@pytest.fixture(scope="session")
def flight_class_path() -> str:
    """Return the class path of Arrow's Flight client, as Maven resolves it."""
    target = BUILD / "flight-core.classpath"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
        command = [
            str(_MAVEN),
            "-q",
            "-f",
            str(Path(__file__).parent / "java/pom.xml"),
            goal,
            f"-Dmdep.outputFile={target}",
        ]
        subprocess.run(command, cwd=_MAVEN.parent, check=True, timeout=MAVEN_TIMEOUT_SECONDS)
    return target.read_text()


@pytest.fixture
def pool_lives(pool: LocalPool) -> Iterator[None]:
    """Check after the test that the same supervisor and front answer a plain exchange."""
    before = _supervisor_and_front(pool)
    yield
    batch = pa.RecordBatch.from_pydict({"_0": [1, 2, 3]})
    reply = exchange(pool.tcp_address, whole_request(echo_command(), batch.schema, [batch]))
    assert reply.batches() == [batch], (reply.code, reply.details)
    assert _supervisor_and_front(pool) == before


def _supervisor_and_front(pool: LocalPool) -> tuple[int, int | None]:
    front = pool.front()
    return pool.members()[0].pid, front.pid if front is not None else None
