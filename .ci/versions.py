# SPDX-License-Identifier: Apache-2.0
"""Writer of the texts that derive from spark-versions.toml; with --check it only reports differences.

A place for a text is between two lines that contain `spark-versions.toml: <part>` and `spark-versions.toml: end`.
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
# Sparks whose changes need two source folders: spark-before-X and spark-since-X.
_SOURCES_CHANGED_IN = ("4.0", "4.1", "4.2")
# Packages of the libraries that a jar may carry.
_CARRIED = {"guava": "com.google.common", "gson": "com.google.gson"}
# The compiler's warnings, by Scala.
_WARNINGS = {
    "2.12": {"scala.lint": "-Xlint:_", "scala.unused": "-Ywarn-unused:imports,privates,locals"},
    "2.13": {"scala.lint": "-Xlint:_,-byname-implicit", "scala.unused": "-Wunused:imports,privates,locals"},
}

Row = dict[str, Any]


class Table:
    """Rows of spark-versions.toml, newest first."""

    def __init__(self, text: str) -> None:
        parsed: dict[str, Any] = tomllib.loads(text)
        self.sparks: list[Row] = parsed["spark"]
        self.jars: list[Row] = parsed["jar"]
        self.rapids: Row = parsed["rapids"]
        self.tables: Row = parsed["tables"]

    def jars_of(self, spark: Row) -> list[Row]:
        """Return the jars that run on a Spark; the jar for PySpark's Scala comes first."""
        return [jar for jar in self.jars if jar["version"] == spark["jar"]]

    def jar_of(self, spark: Row) -> Row:
        """Return the jar that runs on a Spark with the Scala of PySpark."""
        return self.jars_of(spark)[0]


def profiles(table: Table) -> str:
    """Return Maven's profiles: the properties and source folders of each Spark."""
    return "".join(_profile(jar, default=jar is table.jars[0]) for jar in table.jars)


def _profile(jar: Row, *, default: bool) -> str:
    spark, scala = jar["version"], _scala(jar)
    properties = {"spark.binary.version": spark, "scala.binary.version": scala}
    properties |= {f"{key}.version": value for key, value in jar.items() if key not in ("version", "carries")}
    # Iceberg has no runtime for 4.2. The connector only uses classes that are the same in all runtimes.
    properties["delta.artifact"] = (
        f"delta-spark_{spark}_{scala}" if _number(spark) >= (4, 0) else f"delta-spark_{scala}"
    )
    properties["iceberg.artifact"] = f"iceberg-spark-runtime-{'4.1' if _number(spark) >= (4, 0) else spark}_{scala}"
    for library, package in _CARRIED.items():
        carried = library in jar.get("carries", ())
        properties[f"{library}.scope"] = "compile" if carried else "provided"
        properties[f"{library}.relocated"] = package if carried else f"none.{library}"
    properties |= _WARNINGS[scala]
    for change in _SOURCES_CHANGED_IN:
        side = "since" if _number(jar["version"]) >= _number(change) else "before"
        properties[f"sources.{change}"] = f"spark-{side}-{change}"
    lines = ["<profile>", f"  <id>spark-{_name(jar)}</id>"]
    if default:
        lines += ["  <activation>", "    <activeByDefault>true</activeByDefault>", "  </activation>"]
    lines += ["  <properties>", *(f"    <{key}>{value}</{key}>" for key, value in properties.items())]
    lines += ["  </properties>", "</profile>"]
    return "".join(f"    {line}\n" for line in lines)


def variables(table: Table) -> str:
    """Return Make's variables: the Sparks, newest first, their jars, and versions of libraries tested beside them."""
    jars = "".join(f"JAR_OF_{spark['version']} := {_name(table.jar_of(spark))}\n" for spark in table.sparks)
    jars += f"JAR_NAMES := {' '.join(_name(jar) for jar in table.jars)}\n"
    sparks = " ".join(spark["version"] for spark in table.sparks)
    beside = {"RAPIDS": table.rapids["version"], "RAPIDS_SPARK": table.rapids["spark"]}
    beside |= {"DELTA": table.tables["delta"], "ICEBERG": table.tables["iceberg"]}
    beside |= {"TABLES_SPARK": table.tables["spark"]}
    return f"SPARKS := {sparks}\n{jars}" + "".join(f"{name} := {value}\n" for name, value in beside.items())


def groups(table: Table) -> str:
    """Return uv's dependency groups: one pyspark each."""
    return "".join(f'{group} = ["pyspark=={pyspark}"]\n' for group, pyspark in _groups(table).items())


def conflicts(table: Table) -> str:
    """Return uv's rule that no environment has two of the groups."""
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
    return _list([f"pyspark>={oldest['version']},<{major}.{minor + 1}", "pandas>=2.2,<3", "numpy>=1.26"])


def jars(table: Table) -> str:
    """Return the jars of each Spark as Python source; the jar for PySpark's Scala comes first."""
    names = {spark["version"]: [_name(jar) for jar in table.jars_of(spark)] for spark in table.sparks}
    return "".join(f'    "{spark}": {_list(jars)},\n' for spark, jars in names.items())


def lines(table: Table) -> str:
    """Return the jars that the wheel `updraft-spark` carries."""
    return f"jars = {_list([_name(jar) for jar in table.jars])}\n"


def compatibility(table: Table) -> str:
    """Return the table of docs/compatibility.md."""
    head = ["Spark", "connector's jar", "built against", "its Arrow and Netty", "pyspark of the pool"]
    rows = [head, ["---"] * len(head)]
    for spark in table.sparks:
        rows += [
            [
                f"{spark['version']}.x",
                f"`updraft-spark-{_name(jar)}`",
                f"Spark {jar['spark']}, Scala {jar['scala']}",
                f"{jar['arrow']}, {jar['netty'].removesuffix('.Final')}",
                f"{spark['version']}.x, tested: {spark['pyspark']}",
            ]
            for jar in table.jars_of(spark)
        ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def workflow(table: Table) -> str:
    """Return the Sparks of a matrix of jobs."""
    sparks = ", ".join(f'"{spark["version"]}"' for spark in table.sparks)
    return f"        spark: [{sparks}]\n"


def _groups(table: Table) -> dict[str, str]:
    sparks = {f"spark{spark['version'].replace('.', '')}": spark["pyspark"] for spark in table.sparks}
    return {**sparks, "rapids": table.rapids["pyspark"]}


def _name(jar: Row) -> str:
    """Return a jar's Spark and Scala versions, such as `3.5_2.12`."""
    return f"{jar['version']}_{_scala(jar)}"


def _scala(jar: Row) -> str:
    return ".".join(jar["scala"].split(".")[:2])


def _quoted(text: str) -> str:
    return f'"{text}"'


def _list(texts: list[str]) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"


def _number(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


_PARTS: dict[str, Callable[[Table], str]] = {
    part.__name__: part
    for part in (profiles, variables, groups, conflicts, extra, pyspark, lines, jars, compatibility, workflow)
}


def fill(text: str, table: Table) -> str:
    """Return a file's text with every place rewritten."""
    return _PLACE.sub(lambda match: match[1] + _PARTS[match[2]](table) + match[3], text)


def main() -> int:
    """Write the places; with --check, return 1 if one differs from the table."""
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
