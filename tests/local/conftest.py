# SPDX-License-Identifier: Apache-2.0
"""The package that carries the jars, as the wheel `updraft-spark` installs it, with the jar that was built here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY, connector_jar
from tests.support.spark import use_short_lived_jvms


def pytest_configure() -> None:
    use_short_lived_jvms()


@pytest.fixture
def carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it is importable from, by this process and those that it starts."""
    package = tmp_path / "site/updraft_spark"
    (package / "jars").mkdir(parents=True)
    shutil.copy(REPOSITORY / "spark-connector/python/src/updraft_spark/__init__.py", package)
    shutil.copy(connector_jar(), package / "jars")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    return package
