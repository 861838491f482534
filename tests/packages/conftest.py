# SPDX-License-Identifier: Apache-2.0
"""Wheels of this checkout, and environments with the requirements that the lock file has for them."""

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
    """Return a folder of wheels with an `updraft` that is not ours, as PyPI has one."""
    directory = tmp_path_factory.mktemp("strangers")
    stranger(directory, "updraft")
    return directory


@pytest.fixture
def third_party(tmp_path: Path) -> Path:
    """Return a new environment with the programs' third-party requirements."""
    return environment(tmp_path, *_PROGRAMS)


@pytest.fixture
def light_environment(tmp_path: Path) -> Path:
    """Return a new environment with the third-party requirements of `updraft-core` without extras."""
    return environment(tmp_path, "updraft-core")
