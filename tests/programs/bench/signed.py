# SPDX-License-Identifier: Apache-2.0
"""`make bench-signed`: cost of a signed exchange compared with an unsigned one.

The program times both kinds in turn against one pool that accepts both, with one batch of one row and the same owner.
The times exclude signing, because a driver signs once per stage. No test asserts these times. The program prints
medians and 95th percentiles next to the promise; the exit status is 1 if the difference of the medians misses the
promise.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from signing import Driver, write_signers

from tests.programs.bench.one_row import command_of, schema_of, seconds_of
from tests.support.pool import LocalPool

_PROMISED_MILLISECONDS = 2.0


def main() -> int:
    """Measure and print; return 1 if the promise is missed."""
    parser = argparse.ArgumentParser(prog="bench-signed", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="exchanges of each kind, 2 or more (200)")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds takes 2 or more")
    load = os.getloadavg()[0]
    unsigned, signed = measure(options.rounds)
    print(f"{options.rounds} exchanges of each kind; {os.cpu_count()} cores, load average {load:.1f} at the start")
    for name, seconds in (("unsigned", unsigned), ("signed", signed)):
        median, last = statistics.median(seconds), statistics.quantiles(seconds, n=20)[-1]
        print(f"{name:10}{median * 1000:8.2f} ms at the median{last * 1000:8.2f} ms at 95%")
    extra = (statistics.median(signed) - statistics.median(unsigned)) * 1000
    kept = extra <= _PROMISED_MILLISECONDS
    print(f"extra {extra:.2f} ms, promised {_PROMISED_MILLISECONDS:g}: {'kept' if kept else 'MISSED'}")
    return 0 if kept else 1


def measure(rounds: int) -> tuple[list[float], list[float]]:
    """Return the seconds of unsigned and of signed exchanges, measured in turn."""
    driver = Driver()
    found: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory() as directory:
        signers = write_signers(Path(directory, "signers"), [driver])["signers_file"]
        arguments = ["--signers-file", str(signers)]
        with LocalPool(workers=1, session_functions="prefer-signed", arguments=arguments) as pool:
            unsigned = command_of("bench-signed")
            signed = driver.signed(unsigned, schema_of(unsigned))
            for command in (unsigned, signed):
                seconds_of(pool, command)
            for _ in range(rounds):
                for seconds, command in zip(found, (unsigned, signed), strict=True):
                    seconds.append(seconds_of(pool, command))
    return found


if __name__ == "__main__":
    sys.exit(main())
