# SPDX-License-Identifier: Apache-2.0
"""Command line of the simulator, which runs random seeds for some time, or one seed with its trace."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time

from tests.simulation.planted import BUGS, planted
from tests.simulation.seeds import checked, explained, failures
from tests.simulation.simulate import simulate

_SEEDS_AT_A_TIME = 400


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed and print its trace")
    parser.add_argument("--seeds", type=int, help="number of random seeds; without it, --minutes alone counts")
    parser.add_argument("--minutes", type=float, help="run for this long at most")
    parser.add_argument("--first", type=int, help="run the seeds from this one on, instead of random ones")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="processes that share them")
    parser.add_argument("--planted", choices=list(BUGS), help="plant this bug first (README.md); runs in one process")
    options = parser.parse_args()
    if options.planted is not None:
        with planted(options.planted):
            return _run(parser, options, processes=1)
    return _run(parser, options, processes=options.processes)


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace, *, processes: int) -> int:
    if options.seed is not None:
        return _replay(options.seed)
    if options.seeds is None and options.minutes is None:
        parser.error("name --seeds, --minutes or both")
    first = options.first if options.first is not None else random.SystemRandom().randrange(1 << 40)
    return _search(first, options.seeds, options.minutes, processes)


def _replay(seed: int) -> int:
    outcome = simulate(seed, keeps_lines=True)
    print("\n".join(outcome.lines))
    violation = outcome.violation or checked(seed).violation
    print(f"seed {seed}: {violation or 'every invariant held'} (digest {outcome.digest})")
    return int(bool(violation))


def _search(first: int, seeds: int | None, minutes: float | None, processes: int) -> int:
    began, done, found = time.monotonic(), 0, 0
    while (seeds is None or done < seeds) and (minutes is None or time.monotonic() - began < minutes * 60):
        count = _SEEDS_AT_A_TIME if seeds is None else min(_SEEDS_AT_A_TIME, seeds - done)
        for outcome in failures(range(first + done, first + done + count), processes=processes):
            found += 1
            print(explained(outcome), flush=True)
        done += count
    print(f"{done} seeds from {first} on, each run twice, in {time.monotonic() - began:.0f} s: {found} failed")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
