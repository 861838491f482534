# SPDX-License-Identifier: Apache-2.0
"""`make bench-check`: compare udf.json, which `make bench-udf` wrote, with the target of every case."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.programs.bench import record
from tests.programs.bench.cases import CASES
from tests.programs.bench.report import print_table, print_targets


def main() -> int:
    """Print targets and measurements; return 1 if a target is missed or a case has no measurement."""
    return check(record.MEASURED / "udf.json")


def check(path: Path) -> int:
    """Return the exit status for the measurements in a file."""
    ratios = print_table(CASES, record.read(path))
    print_targets(ratios)
    unmeasured = [case.name for case in CASES if case not in ratios]
    if unmeasured:
        print(f"not measured, run `make bench-udf`: {', '.join(unmeasured)}")
    return 1 if unmeasured or not all(case.target.is_met_by(ratio) for case, ratio in ratios.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
