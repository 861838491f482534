# SPDX-License-Identifier: Apache-2.0
"""`make bench-warm BASE=../checkout`: cost of a known owner's exchange, compared with the pool of another checkout.

`make setup` must have run in each checkout. Each checkout starts a pool with its own code. One client sends one row to
both pools in turn, in random order within each pair. The owner already has a worker, so the pool forks no process and
loads no function. The exchanges come at two paces: so soon after each other that the worker is awake, and so late that
the pool has stopped the worker (SIGSTOP) and has to continue it.

For each pace the program prints the medians in milliseconds, and the median of the differences of pairs with its 95%
confidence interval. If one of these differences exceeds --at-most, the exit status is 1. The limits on workers between
exchanges may add 0.3 ms, compared with the commit before these limits.
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
_WARM_UP = 20
# A pool stops a worker that was quiet at two checks, which are a quarter of a second apart.
_PAUSES_SECONDS = {"awake": 0.02, "stopped": 1.0}
# Measure fewer pairs with long pauses, so that both paces together take a few minutes.
_FEWER = {"awake": 1, "stopped": 5}

Pair = tuple[float, float]


def main() -> int:
    """Measure and print; return 1 if a difference exceeds --at-most."""
    options = _options()
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start; ms of an exchange")
    print(f"{'worker':10}{'pairs':>6}{'this tree':>11}{'base':>8}{'difference':>12}{'interval':>18}")
    with LocalPool() as ours, LocalPool(server=options.base / ".venv/bin" / SERVER.name) as theirs:
        medians = [
            _print(pace, _measured(pace, ours, theirs, options.pairs // _FEWER[pace])) for pace in _PAUSES_SECONDS
        ]
    return 0 if options.at_most is None or max(medians) <= options.at_most else 1


def _measured(pace: str, ours: LocalPool, theirs: LocalPool, pairs: int) -> list[Pair]:
    """Return the milliseconds of exchanges in both pools, in pairs."""
    command, order, found = command_of(_OWNER), random.Random(_OWNER), list[Pair]()
    for number in range(_WARM_UP // _FEWER[pace] + pairs):
        taken = {}
        for pool in order.sample([ours, theirs], 2):
            time.sleep(_PAUSES_SECONDS[pace])
            taken[pool] = seconds_of(pool, command) * 1000
        if number >= _WARM_UP // _FEWER[pace]:
            found.append((taken[ours], taken[theirs]))
    return found


def _print(pace: str, pairs: list[Pair]) -> float:
    """Print the results of one pace; return the median of the differences."""
    differences = sorted(our - their for our, their in pairs)
    beyond, median = outside(len(differences)), statistics.median(differences)
    our, their = (statistics.median(side) for side in zip(*pairs, strict=True))
    interval = f"{differences[beyond]:+.2f} to {differences[-1 - beyond]:+.2f}"
    print(f"{pace:10}{len(pairs):6}{our:11.2f}{their:8.2f}{median:+12.2f}{interval:>18}", flush=True)
    return median


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench-warm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", type=Path, required=True, help="the other checkout")
    help_ = "counted exchanges in each pool with an awake worker, 50 or more; a fifth of them with a stopped one (500)"
    parser.add_argument("--pairs", type=int, default=500, help=help_)
    parser.add_argument("--at-most", type=float, help="milliseconds that this tree may take beyond the other")
    options = parser.parse_args()
    options.base = options.base.resolve()
    if not (options.base / ".venv/bin" / SERVER.name).exists():
        parser.error(f"{options.base} is not set up: run `make setup` there")
    if options.pairs < 50:
        parser.error("--pairs takes 50 or more")
    return options


if __name__ == "__main__":
    sys.exit(main())
