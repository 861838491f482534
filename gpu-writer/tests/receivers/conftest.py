# SPDX-License-Identifier: Apache-2.0
"""Writer with receivers, shared by all tests of a file."""

from collections.abc import Iterator

import pytest
from receiving_writer import writer_with_receivers
from running_writer import RunningWriter


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWriter]:
    with writer_with_receivers(tmp_path_factory.mktemp("receivers")) as writer:
        yield writer


@pytest.fixture
def writer(shared: RunningWriter) -> Iterator[RunningWriter]:
    """Return the shared writer; each test must leave it empty."""
    yield shared
    shared.becomes_empty()
