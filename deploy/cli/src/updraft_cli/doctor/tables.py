# SPDX-License-Identifier: Apache-2.0
"""Checks of a Spark conf that sends the data files of Delta or Iceberg tables to a writer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from updraft.spark.jars import EXTENSIONS
from updraft_cli.doctor.confs import JAR_CONFS
from updraft_cli.doctor.driver import Driver, minor
from updraft_cli.doctor.finding import Findings

_TABLES = "spark.updraft.write.tables"
_CHECK = "tables"


@dataclass(frozen=True, slots=True)
class _Format:
    name: str
    extension: str
    """Session extension that adds the format's commands to Spark."""
    releases: Mapping[str, tuple[str, ...]]
    """Releases that the connector knows, by Spark's major version; a test compares them with the connector's rules."""
    jar: re.Pattern[str]
    """Name of the format's jar, as a file or as Maven coordinates: the version of Spark, then the format's version."""
    coordinates: Mapping[str, str]
    """Maven coordinates by Spark's major version, with {spark} and {release}."""


FORMATS = {
    "delta": _Format(
        "Delta",
        "io.delta.sql.DeltaSparkSessionExtension",
        {"3": ("3.3",), "4": ("4.4",)},
        re.compile(r"delta-spark(?:_(\d+\.\d+))?_2\.1[23][-:](\d+\.\d+)"),
        {"3": "io.delta:delta-spark_2.12:{release}.2", "4": "io.delta:delta-spark_{spark}_2.13:{release}.0"},
    ),
    "iceberg": _Format(
        "Iceberg",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        {"3": ("1.11", "1.12"), "4": ("1.11", "1.12")},
        re.compile(r"iceberg-spark-runtime-(\d+\.\d+)_2\.1[23][-:](\d+\.\d+)"),
        {
            "3": "org.apache.iceberg:iceberg-spark-runtime-{spark}_2.12:{release}.0",
            "4": "org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13:{release}.0",
        },
    ),
}


def check_tables(confs: Mapping[str, str], driver: Driver, findings: Findings) -> None:
    """Check whether the writer will write the tables that the conf names."""
    chosen = [name.strip().lower() for name in confs.get(_TABLES, "none").split(",")]
    if chosen == ["none"]:
        return
    extensions = {name.strip() for name in confs.get("spark.sql.extensions", "").split(",")}
    if EXTENSIONS not in extensions:
        findings.error(
            _CHECK, f"{_TABLES} has no effect without {EXTENSIONS}", "add the extension to spark.sql.extensions"
        )
    if "spark.updraft.write.endpoint" not in confs:
        findings.error(
            _CHECK, f"{_TABLES} is set without a writer: every write fails", "set spark.updraft.write.endpoint"
        )
    for name in chosen:
        if name not in FORMATS:
            findings.error(_CHECK, f"{_TABLES} has {name!r}", f"use none, or some of {', '.join(FORMATS)}")
        else:
            _check_format(FORMATS[name], extensions, confs, driver, findings)


def _check_format(
    table: _Format, extensions: set[str], confs: Mapping[str, str], driver: Driver, findings: Findings
) -> None:
    if table.extension not in extensions:
        findings.warning(
            _CHECK,
            f"spark.sql.extensions lacks {table.extension}",
            f"add it after {EXTENSIONS} if the job uses {table.name}'s own commands",
        )
    spark = minor(driver.pyspark)
    major = "3" if spark.startswith("3.") else "4"
    releases = table.releases[major]
    advice = f"use {table.coordinates[major].format(spark=spark or 'X.Y', release=releases[-1])}"
    found = next((match for conf in JAR_CONFS if (match := table.jar.search(confs.get(conf, "")))), None)
    if found is None:
        findings.warning(
            _CHECK, f"no setting names {table.name}'s jar", f"unless it is in Spark's own jars folder, {advice}"
        )
    elif found[2] not in releases:
        findings.warning(
            _CHECK,
            f"{table.name} {found[2]}: the connector knows {' and '.join(releases)}, so {table.name}'s own writer"
            " makes the data files",
            advice,
        )
    elif found[1] and spark and found[1] != spark:
        findings.error(_CHECK, f"{found[0]} is for Spark {found[1]}, not for {driver.pyspark}", advice)
    else:
        findings.ok(_CHECK, f"{table.name} {found[2]}")
