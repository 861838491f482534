# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of the front."""

import functools
from pathlib import Path

import pytest
from front_harness import Running, running_front_over


@pytest.fixture
def running_front(tmp_path: Path) -> Running:
    """Return `running_front(pool, **settings)`, a context manager around a front that serves until the block ends."""
    return functools.partial(running_front_over, artifacts_directory=tmp_path / "artifacts")
