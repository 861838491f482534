# SPDX-License-Identifier: Apache-2.0
"""Package that carries the jars, as the wheel `updraft-spark` installs it, with the jar that was built here."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.paths import REPOSITORY, connector_jar


def carry_jar(site: Path) -> Path:
    """Put the package into the import folder `site`; return its own directory."""
    package = site / "updraft_spark"
    (package / "jars").mkdir(parents=True)
    shutil.copy(REPOSITORY / "spark-connector/python/src/updraft_spark/__init__.py", package)
    shutil.copytree(REPOSITORY / "spark-connector/python/src/updraft_spark/bin", package / "bin")
    shutil.copy(connector_jar(), package / "jars")
    return package
