# SPDX-License-Identifier: Apache-2.0
"""Mistakes in a conf that sends the data files of tables to a writer."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from tests.support.paths import REPOSITORY
from tests.support.spark import EXTENSION
from updraft_cli.doctor.driver import Driver
from updraft_cli.doctor.finding import Finding, Findings, Level
from updraft_cli.doctor.tables import FORMATS, check_tables

_RULES = REPOSITORY / "spark-connector/spark/src/main/scala/io/updraft/spark/write"
_DELTA = "io.delta:delta-spark_4.1_2.13:4.4.0"
_ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
_RIGHT = {
    "spark.jars.packages": f"{_DELTA},{_ICEBERG}",
    "spark.sql.extensions": ",".join([EXTENSION, *(table.extension for table in FORMATS.values())]),
    "spark.updraft.write.endpoint": "grpc://writer:8816",
    "spark.updraft.write.tables": "delta, iceberg",
}


def _found(confs: Mapping[str, str]) -> list[Finding]:
    findings = Findings("session")
    check_tables(confs, Driver("3.11.7", "4.1.4"), findings)
    return findings.all


def test_a_right_conf_names_the_release_of_each_format() -> None:
    assert [(finding.level, finding.found) for finding in _found(_RIGHT)] == [
        (Level.OK, "Delta 4.4"),
        (Level.OK, "Iceberg 1.12"),
    ]


@pytest.mark.parametrize("tables", ["none", None])
def test_a_conf_without_tables_needs_nothing(tables: str | None) -> None:
    assert not _found({"spark.updraft.write.tables": tables} if tables else {})


@pytest.mark.parametrize(
    ("mistake", "level", "says"),
    [
        ({"spark.updraft.write.tables": "delta, hudi"}, Level.ERROR, "has 'hudi'"),
        ({"spark.sql.extensions": FORMATS["delta"].extension}, Level.ERROR, "has no effect without"),
        ({"spark.sql.extensions": EXTENSION}, Level.WARNING, "spark.sql.extensions lacks io.delta"),
        ({"spark.updraft.write.endpoint": None}, Level.ERROR, "every write fails"),
        ({"spark.jars.packages": _ICEBERG}, Level.WARNING, "no setting names Delta's jar"),
        ({"spark.jars.packages": "io.delta:delta-spark_2.13:4.0.0"}, Level.WARNING, "Delta 4.0: the connector knows"),
        ({"spark.jars.packages": _DELTA.replace("4.1_", "4.0_")}, Level.ERROR, "is for Spark 4.0, not for 4.1.4"),
    ],
    ids=lambda value: next(iter(value.values())) if isinstance(value, dict) else "",
)
def test_a_mistake_is_found(mistake: dict[str, str | None], level: Level, says: str) -> None:
    changed = {**_RIGHT, "spark.updraft.write.tables": "delta"} | mistake
    found = _found({name: value for name, value in changed.items() if value is not None})
    (finding,) = (finding for finding in found if finding.level is not Level.OK)
    assert finding.level is level
    assert says in finding.found
    assert finding.advice


@pytest.mark.parametrize(
    ("name", "rules", "line"),
    [
        ("delta", "delta/DeltaRules.scala", r"val Releases = Seq\((.*)\)"),
        ("iceberg", "iceberg/IcebergRules.scala", r"val Releases = Seq\((.*)\)"),
    ],
)
def test_the_doctor_knows_the_releases_that_the_connector_knows(name: str, rules: str, line: str) -> None:
    found = re.search(line, (_RULES / rules).read_text())
    assert found is not None
    known = {release for releases in FORMATS[name].releases.values() for release in releases}
    assert set(re.findall(r'"([^"]+)"', found[1])) == known


def test_spark_3_5_has_a_delta_of_its_own() -> None:
    findings = Findings("session")
    confs = {**_RIGHT, "spark.jars.packages": "io.delta:delta-spark_2.12:3.3.2", "spark.updraft.write.tables": "delta"}
    check_tables(confs, Driver("3.11.7", "3.5.8"), findings)
    assert [(finding.level, finding.found) for finding in findings.all] == [(Level.OK, "Delta 3.3")]
