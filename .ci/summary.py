# SPDX-License-Identifier: Apache-2.0
"""Counts the tests of a check from the JUnit reports that pytest, Surefire and ScalaTest left."""

import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree


@dataclass(frozen=True)
class Count:
    """Tests of one suite by outcome."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


def count_report(report: Path) -> Count:
    """Count one JUnit XML file; raises ParseError when it was cut off."""
    total = Count()
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        total += Count(tests - failed - skipped, failed, skipped)
    return total


def collect(reports: Path, connector: Path) -> dict[str, Count]:
    """Suites by name: one per pytest report, one per Maven module and Spark."""
    suites = {report.stem: count_report(report) for report in sorted(reports.glob("*.xml"))}
    for build in sorted(connector.glob("*/target/*")):
        found = [count_report(report) for report in build.glob("*-reports/*.xml")]
        if found:
            suites[f"connector-{build.parts[-3]}, {build.name}"] = sum(found, Count())
    return suites


def main() -> int:
    """Print a line per suite and the total; the exit code is 1 when a test failed or none ran."""
    suites = collect(Path(sys.argv[1]), Path(sys.argv[2]))
    total = sum(suites.values(), Count())
    for name, count in suites.items():
        print(f"{name:32} {count.passed:5} passed {count.failed:3} failed {count.skipped:3} skipped")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
