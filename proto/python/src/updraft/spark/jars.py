# SPDX-License-Identifier: Apache-2.0
"""Jars of the connector: which one fits which Spark, and where the distribution `updraft-spark` keeps it."""

import importlib.metadata
import importlib.util
import re
from pathlib import Path

EXTENSIONS = "io.updraft.spark.UpdraftExtensions"
"""Value of `spark.sql.extensions`."""

JARS = {
    # spark-versions.toml: jars
    "4.3": "4.2",
    "4.2": "4.2",
    "4.1": "4.1",
    "4.0": "4.0",
    # spark-versions.toml: end
}
"""Version of the jar for each Spark, newest Spark first."""

# Full PySpark, or only its Spark Connect client.
_DISTRIBUTIONS = ("pyspark", "pyspark-client")
_PACKAGE = "updraft_spark"
_MAJOR_MINOR = re.compile(r"(\d+\.\d+)(?:\..*)?")


def jar(spark: str | None = None) -> Path:
    """Return the path of the connector's jar for a version of Spark: the value of `spark.jars`.

    Args:
        spark: Version of Spark, such as "4.3" or "4.3.0"; None for that of the PySpark installed here.

    Raises:
        ValueError: Updraft has no jar for this Spark, or `spark` is None and no PySpark is installed.
        ModuleNotFoundError: The distribution `updraft-spark`, which carries the jars, is not installed.
    """
    version = spark if spark is not None else _installed_spark()
    matched = _MAJOR_MINOR.fullmatch(version)
    line = JARS.get(matched[1]) if matched else None
    if line is None:
        raise ValueError(f"Updraft has no jar for Spark {version}; it runs on {', '.join(JARS)}")
    return _jar_of(line)


def _installed_spark() -> str:
    for name in _DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise ValueError(
        "no PySpark is installed here: name the version of Spark, such as 4.3, or pip install 'updraft-spark[pyspark]'"
    )


def _jar_of(line: str) -> Path:
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(
            "the connector's jars are in the distribution updraft-spark: pip install updraft-spark", name=_PACKAGE
        )
    jars = sorted((Path(found.origin).parent / "jars").glob(f"updraft-spark-{line}_2.13-*.jar"))
    if len(jars) != 1:
        raise ModuleNotFoundError(
            f"{Path(found.origin).parent} has {len(jars)} jars for Spark {line} where one is expected:"
            " pip install --force-reinstall updraft-spark",
            name=_PACKAGE,
        )
    return jars[0]
