# SPDX-License-Identifier: Apache-2.0
"""Files of the distribution `updraft-spark`: the connector's jars for each Spark and Scala, and the launcher."""

import importlib.metadata
import importlib.util
import re
from pathlib import Path

EXTENSIONS = "io.updraft.spark.UpdraftExtensions"
"""Value of `spark.sql.extensions`."""

WORKER_PLUGIN = "io.updraft.spark.WorkerPlugin"
"""Value of `spark.plugins` for a Spark whose Python workers run on the pool."""

JARS = {
    # spark-versions.toml: jars
    "4.3": ["4.2_2.13"],
    "4.2": ["4.2_2.13"],
    "4.1": ["4.1_2.13"],
    "4.0": ["4.0_2.13"],
    "3.5": ["3.5_2.12", "3.5_2.13"],
    # spark-versions.toml: end
}
"""Version and Scala of the jars for each Spark, newest Spark first. The first jar is for PySpark from PyPI."""

# Full PySpark, or only its Spark Connect client.
_DISTRIBUTIONS = ("pyspark", "pyspark-client")
_PACKAGE = "updraft_spark"
_MAJOR_MINOR = re.compile(r"(\d+\.\d+)(?:\..*)?")


def jar(spark: str | None = None, *, scala: str | None = None) -> Path:
    """Return the path of the connector's jar for a version of Spark: the value of `spark.jars`.

    Args:
        spark: Version of Spark, such as "4.3" or "4.3.0"; None for the version of the PySpark installed here.
        scala: Version of Spark's Scala, such as "2.12"; None for the Scala of PySpark from PyPI. Only Spark 3.5 has
            jars for two versions.

    Raises:
        ValueError: Updraft has no jar for this Spark and Scala, or `spark` is None and no PySpark is installed.
        ModuleNotFoundError: The distribution `updraft-spark`, which carries the jars, is not installed.
    """
    version = spark if spark is not None else _installed_spark()
    matched = _MAJOR_MINOR.fullmatch(version)
    names = JARS.get(matched[1]) if matched else None
    if names is None:
        raise ValueError(f"Updraft has no jar for Spark {version}; it runs on {', '.join(JARS)}")
    fitting = [name for name in names if scala is None or name.endswith(f"_{scala}")]
    if not fitting:
        known = " and ".join(name.split("_")[1] for name in names)
        raise ValueError(f"Updraft has no jar for Spark {version} in Scala {scala}; it has one in Scala {known}")
    return _jar_of(fitting[0])


def _installed_spark() -> str:
    for name in _DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise ValueError(
        "no PySpark is installed here: name the version of Spark, such as 4.3, or pip install 'updraft-spark[pyspark]'"
    )


def launcher() -> Path:
    """Return the path of `updraft-python`: the value of `spark.pyspark.python` for Python workers on the pool.

    Raises:
        ModuleNotFoundError: The distribution `updraft-spark`, which carries the launcher, is not installed.
    """
    return _package() / "bin/updraft-python"


def _package() -> Path:
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(
            "the connector's jars are in the distribution updraft-spark: pip install updraft-spark", name=_PACKAGE
        )
    return Path(found.origin).parent


def _jar_of(name: str) -> Path:
    package = _package()
    jars = sorted((package / "jars").glob(f"updraft-spark-{name}-*.jar"))
    if len(jars) != 1:
        raise ModuleNotFoundError(
            f"{package} has {len(jars)} jars updraft-spark-{name} where one is expected:"
            " pip install --force-reinstall updraft-spark",
            name=_PACKAGE,
        )
    return jars[0]
