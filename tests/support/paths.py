# SPDX-License-Identifier: Apache-2.0
"""Where things lie: the repository, its build folder, the connector's jar, this environment's programs."""

from __future__ import annotations

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build"
CONNECTOR_JAR = REPOSITORY / "spark-connector/bundle/target/updraft-spark-4.2_2.13-0.1.0.jar"
# The pool and Spark's own workers must be the Python that runs the tests: one environment has one pyspark.
PYTHON = Path(sys.executable)
SERVER = PYTHON.with_name("updraft-server")


def connector_jar() -> Path:
    """Path of the built connector; FileNotFoundError says how to build it."""
    if not CONNECTOR_JAR.exists():
        raise FileNotFoundError(f"{CONNECTOR_JAR.relative_to(REPOSITORY)} is missing: run `make connector`")
    return CONNECTOR_JAR
