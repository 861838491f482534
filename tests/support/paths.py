# SPDX-License-Identifier: Apache-2.0
"""Where things lie: the repository, its build folder, the connector's jar, this environment's programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build"
CONNECTOR_JAR = REPOSITORY / "spark-connector/bundle/target/updraft-spark-4.2_2.13-0.1.0.jar"
# The pool and Spark's own workers must be the Python that runs the tests: one environment has one pyspark.
PYTHON = Path(sys.executable)
_JAR_VARIABLE = "UPDRAFT_CONNECTOR_JAR"
SERVER = PYTHON.with_name("updraft-server")


def use_connector_jar(jar: Path | None) -> None:
    """Use another jar in this process and in those that it starts."""
    if jar is not None:
        os.environ[_JAR_VARIABLE] = str(jar.resolve())


def connector_jar() -> Path:
    """Path of the built connector; FileNotFoundError says how to build it."""
    jar = Path(os.environ.get(_JAR_VARIABLE, CONNECTOR_JAR))
    if not jar.exists():
        raise FileNotFoundError(f"{jar} is missing: run `make connector`")
    return jar
