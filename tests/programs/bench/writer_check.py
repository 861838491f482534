# SPDX-License-Identifier: Apache-2.0
"""`make bench-writer-check`: compare build/bench/writer.json, which `make bench-writer` wrote, with every promise."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.programs.bench.writer_record import read
from tests.programs.bench.writer_targets import Promise, promises
from tests.support.paths import BUILD


def main() -> int:
    """Print promises and measurements; return 1 if a promise is missed or there are no measurements."""
    return check(BUILD / "bench/writer.json")


def check(path: Path) -> int:
    """Return the exit status for the measurements in a file."""
    found = list(promises(read(path)))
    if not found:
        print("nothing is measured: run `make bench-writer` first")
    print_promises(found)
    return 0 if found and all(promise.is_kept for promise in found) else 1


def print_promises(found: list[Promise]) -> None:
    """Print a line for each promise, with its measurement and its target."""
    for promise in found:
        print(f"{'ok  ' if promise.is_kept else 'MISS'} {promise.ratio:5.2f} of {promise.target}  {promise.title}")


if __name__ == "__main__":
    sys.exit(main())
