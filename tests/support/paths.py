# SPDX-License-Identifier: Apache-2.0
"""Paths: the repository, its build folder, the connector's jar, this environment's programs."""

from __future__ import annotations

import os
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

from updraft.spark.jars import JARS

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build"
# Registered functions, as the guides deploy them.
EXAMPLES = REPOSITORY / "docs/examples/functions"
VERSION: str = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
"""Updraft's version, as jars, charts and images carry it."""
# The pool and Spark's own workers run the same Python as the tests, because an environment has only one pyspark.
PYTHON = Path(sys.executable)
_JAR_VARIABLE = "UPDRAFT_CONNECTOR_JAR"
SERVER = PYTHON.with_name("updraft-server")
WRITER = PYTHON.with_name("updraft-writer")


def use_connector_jar(jar: Path | None) -> None:
    """Use another jar in this process and in its child processes."""
    if jar is not None:
        os.environ[_JAR_VARIABLE] = str(jar.resolve())


def connector_jar() -> Path:
    """Return the connector built for this pyspark; the FileNotFoundError says how to build it."""
    spark = ".".join(version("pyspark").split(".")[:2])
    jar = Path(os.environ.get(_JAR_VARIABLE) or _built_jar(spark))
    if not jar.exists():
        raise FileNotFoundError(f"{jar} is missing: run `make connector SPARK={spark}`")
    return jar


def _built_jar(spark: str) -> Path:
    # The first jar of a Spark has the Scala version of PySpark from PyPI.
    return REPOSITORY / f"spark-connector/bundle/target/updraft-spark-{JARS[spark][0]}-{VERSION}.jar"
