# SPDX-License-Identifier: Apache-2.0
"""Writes what follows from spark-versions.toml where it is needed; with --check it only says what differs.

A place is between two lines that hold `spark-versions.toml: <part>` and `spark-versions.toml: end`.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_PLACE = re.compile(
    r"([^\n]*spark-versions\.toml: (\w+)[^\n]*\n).*?([^\n]*spark-versions\.toml: end[^\n]*\n)", re.DOTALL
)
_FILES = (
    "spark-connector/pom.xml",
    "Makefile",
    "pyproject.toml",
    "flight-server/pyproject.toml",
    "spark-connector/python/pyproject.toml",
    "proto/python/src/updraft/spark/jars.py",
    "docs/compatibility.md",
    ".github/workflows/release.yml",
)
# A folder of sources for what changed in each of these: spark-before-X and spark-since-X.
_SOURCES_CHANGED_IN = ("4.1", "4.2")

Row = dict[str, str]


class Table:
    """The rows of spark-versions.toml, newest first."""

    def __init__(self, text: str) -> None:
        parsed: dict[str, Any] = tomllib.loads(text)
        self.sparks: list[Row] = parsed["spark"]
        self.jars: list[Row] = parsed["jar"]
        self.rapids: Row = parsed["rapids"]
        self.tables: Row = parsed["tables"]

    def jar_of(self, spark: Row) -> Row:
        """Return the jar that runs on a Spark."""
        return next(jar for jar in self.jars if jar["version"] == spark["jar"])


def profiles(table: Table) -> str:
    """Maven's profiles: what each Spark brings, and which source folders belong to it."""
    return "".join(_profile(jar, default=jar is table.jars[0]) for jar in table.jars)


def _profile(jar: Row, *, default: bool) -> str:
    properties = {"spark.binary.version": jar["version"]}
    properties |= {f"{key}.version": value for key, value in jar.items() if key != "version"}
    for change in _SOURCES_CHANGED_IN:
        side = "since" if _number(jar["version"]) >= _number(change) else "before"
        properties[f"sources.{change}"] = f"spark-{side}-{change}"
    lines = ["<profile>", f"  <id>spark-{jar['version']}</id>"]
    if default:
        lines += ["  <activation>", "    <activeByDefault>true</activeByDefault>", "  </activation>"]
    lines += ["  <properties>", *(f"    <{key}>{value}</{key}>" for key, value in properties.items())]
    lines += ["  </properties>", "</profile>"]
    return "".join(f"    {line}\n" for line in lines)


def variables(table: Table) -> str:
    """Return Make's variables: the versions, newest first, their jars, and versions of what is tested beside them."""
    jars = "".join(f"JAR_OF_{spark['version']} := {spark['jar']}\n" for spark in table.sparks)
    sparks = " ".join(spark["version"] for spark in table.sparks)
    beside = {"RAPIDS": table.rapids["version"], "RAPIDS_SPARK": table.rapids["spark"]}
    beside |= {"DELTA": table.tables["delta"], "ICEBERG": table.tables["iceberg"]}
    beside |= {"TABLES_SPARK": table.tables["spark"]}
    return f"SPARKS := {sparks}\n{jars}" + "".join(f"{name} := {value}\n" for name, value in beside.items())


def groups(table: Table) -> str:
    """Return uv's dependency groups: one pyspark each."""
    return "".join(f'{group} = ["pyspark=={pyspark}"]\n' for group, pyspark in _groups(table).items())


def conflicts(table: Table) -> str:
    """No environment has two of the groups."""
    names = ", ".join(f'{{ group = "{group}" }}' for group in _groups(table))
    return f"conflicts = [[{names}]]\n"


def extra(table: Table) -> str:
    """Return the requirements of a pool that runs session functions."""
    return f"spark = {_pyspark(table)}\n"


def pyspark(table: Table) -> str:
    """Return the requirements of `updraft-spark` in an environment without PySpark."""
    return f"pyspark = {_pyspark(table)}\n"


def _pyspark(table: Table) -> str:
    oldest, (major, minor) = table.sparks[-1], _number(table.sparks[0]["version"])
    return f'["pyspark>={oldest["version"]},<{major}.{minor + 1}", "pandas>=2.2,<3", "numpy>=1.26"]'


def jars(table: Table) -> str:
    """Which jar runs on which Spark, for Python."""
    return "".join(f'    "{spark["version"]}": "{spark["jar"]}",\n' for spark in table.sparks)


def lines(table: Table) -> str:
    """Return the jars that the wheel `updraft-spark` carries."""
    return f"jars = [{', '.join(chr(34) + jar['version'] + chr(34) for jar in table.jars)}]\n"


def compatibility(table: Table) -> str:
    """Return the table of docs/compatibility.md."""
    head = ["Spark", "connector's jar", "built against", "its Arrow and Netty", "pyspark of the pool"]
    rows = [head, ["---"] * len(head)]
    for spark in table.sparks:
        jar = table.jar_of(spark)
        rows.append(
            [
                f"{spark['version']}.x",
                f"`updraft-spark-{jar['version']}_2.13`",
                f"Spark {jar['spark']}, Scala {jar['scala']}",
                f"{jar['arrow']}, {jar['netty'].removesuffix('.Final')}",
                f"{spark['version']}.x, tested: {spark['pyspark']}",
            ]
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def workflow(table: Table) -> str:
    """Return the Sparks of a matrix of jobs."""
    sparks = ", ".join(f'"{spark["version"]}"' for spark in table.sparks)
    return f"        spark: [{sparks}]\n"


def _groups(table: Table) -> Row:
    sparks = {f"spark{spark['version'].replace('.', '')}": spark["pyspark"] for spark in table.sparks}
    return {**sparks, "rapids": table.rapids["pyspark"]}


def _number(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


_PARTS: dict[str, Callable[[Table], str]] = {
    part.__name__: part
    for part in (profiles, variables, groups, conflicts, extra, pyspark, lines, jars, compatibility, workflow)
}


def fill(text: str, table: Table) -> str:
    """Return a file's text with every place in it written anew."""
    return _PLACE.sub(lambda match: match[1] + _PARTS[match[2]](table) + match[3], text)


def main() -> int:
    """Write the places; with --check the exit code is 1 when one was not as the table says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    only_check = parser.parse_args().check
    table = Table((_ROOT / "spark-versions.toml").read_text())
    stale = []
    for name in _FILES:
        text = (_ROOT / name).read_text()
        if (filled := fill(text, table)) != text:
            stale.append(name)
            if not only_check:
                (_ROOT / name).write_text(filled)
    for name in stale:
        print(f"{name}: not as spark-versions.toml says; run `make versions`" if only_check else f"{name}: written")
    return 1 if only_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
