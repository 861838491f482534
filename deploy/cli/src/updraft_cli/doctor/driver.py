# SPDX-License-Identifier: Apache-2.0
"""Versions of Python and pyspark on the driver, which pickles a job's functions."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

_TIMEOUT_SECONDS = 60
_QUESTION = """
import importlib.metadata, json, platform
try:
    pyspark = importlib.metadata.version("pyspark")
except importlib.metadata.PackageNotFoundError:
    pyspark = ""
print(json.dumps({"python": platform.python_version(), "pyspark": pyspark}))
"""


@dataclass(frozen=True, slots=True)
class Driver:
    """Versions of the driver; a version is empty if it is unknown."""

    python: str = ""
    pyspark: str = ""


def driver_of(confs: Mapping[str, str], interpreter: str) -> Driver:
    """Return the versions of the interpreter that Spark would use for the driver; unknown if it cannot be run."""
    chosen = interpreter_of(confs, interpreter)
    try:
        ran = subprocess.run(  # noqa: S603 - Spark itself would run it
            [chosen, "-c", _QUESTION], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True
        )
        return Driver(**json.loads(ran.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return Driver()


def interpreter_of(confs: Mapping[str, str], interpreter: str) -> str:
    """Return the interpreter that Spark would use for the driver.

    This is `interpreter`, if given. Otherwise it is the interpreter that the conf names, or the interpreter that the
    environment names, or the interpreter of this process, in this order.
    """
    return (
        interpreter
        or confs.get("spark.pyspark.driver.python")
        or confs.get("spark.pyspark.python")
        or os.environ.get("PYSPARK_DRIVER_PYTHON")
        or os.environ.get("PYSPARK_PYTHON")
        or sys.executable
    )


def minor(version: str) -> str:
    """Return the major.minor part of a version."""
    return ".".join(version.split(".")[:2])
