# SPDX-License-Identifier: Apache-2.0
"""Package that carries the jars, for this process and its children."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.carried_jar import carry_jar
from tests.support.spark import use_short_lived_jvms


def pytest_configure() -> None:
    use_short_lived_jvms()


@pytest.fixture
def carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the package importable for this process and its children, and return its path."""
    package = carry_jar(tmp_path / "site")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    return package
