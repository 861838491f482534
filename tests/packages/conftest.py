# SPDX-License-Identifier: Apache-2.0
"""Wheels of this checkout, and an environment with what the lock file says they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packages.distribution import Wheel, build, environment, stranger

_PROGRAMS = ("updraft-server", "updraft-writer", "updraft-cli")


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Wheel]:
    return build(tmp_path_factory.mktemp("wheels"), "--wheel")


@pytest.fixture(scope="session")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels that has what PyPI has: an `updraft` that is not ours."""
    directory = tmp_path_factory.mktemp("strangers")
    stranger(directory, "updraft")
    return directory


@pytest.fixture
def third_party(tmp_path: Path) -> Path:
    """A new environment with what the programs need of others."""
    return environment(tmp_path, *_PROGRAMS)


@pytest.fixture
def light_environment(tmp_path: Path) -> Path:
    """A new environment with what `updraft-core` needs of others, without any of its extras."""
    return environment(tmp_path, "updraft-core")
