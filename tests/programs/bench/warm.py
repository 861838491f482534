# SPDX-License-Identifier: Apache-2.0
"""`make bench-warm BASE=../checkout`: what an exchange of a known owner takes, beside the pool of another checkout.

Each checkout, in which `make setup` has run, starts a pool with its own code. One client asks both for one row in turn,
the order drawn for each pair. Their owner has a worker already, so nothing is forked and no function is loaded.
Printed are the medians in milliseconds, and the median of the differences of pairs with the interval that has the true
median 95 times of 100. With --at-most the program ends with status 1 when that median is larger: 0.3 is what
limits between exchanges may add, beside the commit before they came.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from pathlib import Path

from tests.programs.bench.against import outside
from tests.programs.bench.one_row import command_of, seconds_of
from tests.support.paths import SERVER
from tests.support.pool import LocalPool

_OWNER = "bench-warm"
_WARM_UP = 50


def main() -> int:
    """Measure and print; 1 when the difference is larger than --at-most."""
    options = _options()
    load, command, order = os.getloadavg()[0], command_of(_OWNER), random.Random(_OWNER)
    pairs: list[tuple[float, float]] = []
    with LocalPool() as ours, LocalPool(server=options.base / ".venv/bin" / SERVER.name) as theirs:
        for number in range(_WARM_UP + options.pairs):
            taken = {}
            for pool in order.sample([ours, theirs], 2):
                time.sleep(options.pause_ms / 1000)
                taken[pool] = seconds_of(pool, command) * 1000
            if number >= _WARM_UP:
                pairs.append((taken[ours], taken[theirs]))
    differences = sorted(our - their for our, their in pairs)
    beyond, median = outside(len(differences)), statistics.median(differences)
    print(f"{options.pairs} pairs, {os.cpu_count()} cores, load average {load:.1f} at the start; ms of an exchange")
    print(f"this tree {statistics.median(our for our, _ in pairs):.2f}, {options.base} ", end="")
    print(f"{statistics.median(their for _, their in pairs):.2f}, ", end="")
    print(f"difference {median:+.2f} ({differences[beyond]:+.2f} to {differences[-1 - beyond]:+.2f})")
    return 0 if options.at_most is None or median <= options.at_most else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench-warm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", type=Path, required=True, help="the other checkout")
    parser.add_argument("--pairs", type=int, default=500, help="counted exchanges in each pool, 10 or more (500)")
    parser.add_argument("--pause-ms", type=float, default=20, help="milliseconds before each of them (20)")
    parser.add_argument("--at-most", type=float, help="milliseconds that this tree may take beyond the other")
    options = parser.parse_args()
    options.base = options.base.resolve()
    if not (options.base / ".venv/bin" / SERVER.name).exists():
        parser.error(f"{options.base} is not set up: run `make setup` there")
    if options.pairs < 10:
        parser.error("--pairs takes 10 or more")
    return options


if __name__ == "__main__":
    sys.exit(main())
