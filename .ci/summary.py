# SPDX-License-Identifier: Apache-2.0
"""Counter of a check's tests in the JUnit reports of pytest, Surefire and ScalaTest; it names the stages that failed.

The recipe in check.mk writes two files for each stage: `<stage>.started`, which contains the name of the stage's
report, and `<stage>.passed`. A stage that fails without a failed test (a lint, a suite that crashed, a setup) counts as
one failure, so the last line never looks like success if something failed.
"""

import argparse
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

_CONNECTOR = "connector"


@dataclass(frozen=True)
class Count:
    """Tests of one suite by outcome."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    """Sum of the durations of the tests. Suites run at the same time, so their sum exceeds the length of the check."""

    def __add__(self, other: "Count") -> "Count":
        return Count(
            self.passed + other.passed,
            self.failed + other.failed,
            self.skipped + other.skipped,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True)
class Failure:
    """Stage or report that failed; `failed` is 0 if the failed tests are counted already."""

    name: str
    reason: str
    failed: int = 1


def count_report(report: Path) -> Count:
    """Count one JUnit XML file; raise ParseError if it is truncated."""
    total = Count()
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        total += Count(tests - failed - skipped, failed, skipped, float(suite.get("time", 0)))
    return total


def collect(reports: Path, connector: Path) -> tuple[dict[str, Count], list[Failure]]:
    """Return suites by name, one per pytest report and one per Maven module and Spark; and the truncated reports."""
    suites: dict[str, Count] = {}
    failures = []
    named = [(report.stem, report) for report in sorted(reports.glob("*.xml"))]
    for build in sorted(connector.glob("*/target/*")):
        name = f"{_CONNECTOR}-{build.parts[-3]}, {build.name}"
        named += [(name, report) for report in sorted(build.glob("*-reports/*.xml"))]
    for name, report in named:
        try:
            suites[name] = suites.get(name, Count()) + count_report(report)
        except ElementTree.ParseError:
            failures.append(Failure(name, f"its report {report.name} was cut off"))
    return suites, failures


def failed_stages(
    stages: Iterable[str], notes: Path, suites: dict[str, Count], cut_off: Collection[str]
) -> list[Failure]:
    """Return the stages that failed, or left no report; `cut_off` names suites that already count as failed."""
    failures = []
    for stage in stages:
        started, passed = notes / f"{stage}.started", (notes / f"{stage}.passed").exists()
        report = started.read_text().strip() if started.exists() else ""
        found = [count for name, count in suites.items() if report and _is_of(name, report)]
        is_cut_off = any(_is_of(name, report) for name in cut_off)
        is_counted = is_cut_off or sum(found, Count()).failed > 0
        if not passed and not started.exists():
            failures.append(Failure(stage, "did not run: what it needs was not built, or it was stopped (see above)"))
        elif report and not found and not is_cut_off:
            failures.append(Failure(stage, "failed: it left no report (see above)"))
        elif not passed:
            reason = "failed: see its tests" if is_counted else "failed (see above)"
            failures.append(Failure(stage, reason, failed=0 if is_counted else 1))
    return failures


def _is_of(suite: str, report: str) -> bool:
    return suite == report or (report == _CONNECTOR and suite.startswith(f"{_CONNECTOR}-"))


def main() -> int:
    """Print a line per suite, one per failed stage, and the total; return 1 if anything failed or no test ran."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("reports", type=Path, help="folder of pytest's reports, with the stages' notes in stages/")
    parser.add_argument("connector", type=Path, help="folder of the Maven modules")
    parser.add_argument("stages", nargs="*", help="every stage that has to have passed")
    options = parser.parse_args()
    suites, failures = collect(options.reports, options.connector)
    cut_off = [failure.name for failure in failures]
    failures += failed_stages(options.stages, options.reports / "stages", suites, cut_off)
    total = sum(suites.values(), Count(failed=sum(failure.failed for failure in failures)))
    for name, count in suites.items():
        took = f" {count.seconds:6.0f} s" if count.seconds else ""
        print(f"{name:32} {count.passed:5} passed {count.failed:3} failed {count.skipped:3} skipped{took}")
    for failure in failures:
        print(f"{failure.name:32} {failure.reason}")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if failures or total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
