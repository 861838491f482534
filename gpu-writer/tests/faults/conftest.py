# SPDX-License-Identifier: Apache-2.0
"""Writer whose system calls fail as a test says, shared by the tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from writer_process import THREE_ATTEMPTS, WriterProcess, build_library, writer_process


@pytest.fixture(scope="session")
def failing_calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the library that makes calls fail."""
    return build_library("failing_calls", tmp_path_factory.mktemp("failing_calls"))


@pytest.fixture(scope="module")
def shared(failing_calls: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriterProcess]:
    directory = tmp_path_factory.mktemp("writer")
    with writer_process(directory, failing_calls, constants=THREE_ATTEMPTS) as writer:
        yield writer


@pytest.fixture
def writer(shared: WriterProcess) -> Iterator[WriterProcess]:
    """Return the shared writer without files or failing calls; each test must leave it empty."""
    for path in shared.root.rglob("*.parquet"):
        path.unlink()
    shared.fail()
    yield shared
    shared.is_left_empty()
