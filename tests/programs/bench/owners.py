# SPDX-License-Identifier: Apache-2.0
"""`make bench-owners`: cost of a new owner's first exchange, and of a returning owner's next exchange.

A worker serves one owner. So an application's first exchange uses a fresh worker, and later exchanges use the same
worker, unless the pool has replaced it by a worker for another owner. The program times all kinds of owners in turn
against one pool, with one batch of one row, at two paces: after a pause, as when somebody starts a job, and without a
pause, when new owners come faster than the pool can start workers. No test asserts these times. The program prints
medians and 95th percentiles next to the promises; the exit status is 1 if a median of the pace with pauses misses its
promise. The machine should do nothing else: the header shows its load.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

from tests.programs.bench.one_row import command_of, seconds_of
from tests.support.paths import BUILD
from tests.support.pool import LocalPool

_DIRECTORY = BUILD / "bench"
_PROMISED_SECONDS = {"new": 0.040, "returning": 0.020}
_PAUSES_SECONDS = {"paced": 0.5, "at once": 0.0}


@dataclass
class Exchanges:
    """Seconds of exchanges at one pace, by kind of owner."""

    pace: str
    known: list[float] = field(default_factory=list)
    """Times of an owner that sends an exchange in every round."""
    new: list[float] = field(default_factory=list)
    """Times of an owner's first exchange."""
    returning: list[float] = field(default_factory=list)
    """Times of an owner's second exchange, after a worker of another owner has replaced the owner's worker."""

    def extra_seconds(self, kind: str) -> float:
        """Return the difference between the median of a kind and the median of the known owner."""
        seconds: list[float] = getattr(self, kind)
        return statistics.median(seconds) - statistics.median(self.known)


def main() -> int:
    """Measure, write build/bench/owners.json, print the table; return 1 if a promise is missed."""
    options, load = _options(), os.getloadavg()[0]
    found = list(measure(options.rounds, options.workers))
    _DIRECTORY.mkdir(parents=True, exist_ok=True)
    (_DIRECTORY / "owners.json").write_text(json.dumps([asdict(entry) for entry in found], indent=1) + "\n")
    _print(found, options, load)
    return 0 if all(found[0].extra_seconds(kind) <= promised for kind, promised in _PROMISED_SECONDS.items()) else 1


def measure(rounds: int, workers: int) -> Iterator[Exchanges]:
    """Time a known, a new and a returning owner in turn, with a separate pool for each pace."""
    for pace, pause_seconds in _PAUSES_SECONDS.items():
        found = Exchanges(pace)
        with LocalPool(workers=workers) as pool:
            names = map("bench-owner-{}".format, itertools.count())
            known, last = next(names), next(names)
            for owner in (known, last):
                seconds_of(pool, command_of(owner))
            for _ in range(rounds):
                new = next(names)
                for seconds, owner in ((found.known, known), (found.new, new), (found.returning, last)):
                    time.sleep(pause_seconds)
                    seconds.append(round(seconds_of(pool, command_of(owner)), 5))
                last = new
        yield found


def _print(found: Sequence[Exchanges], options: argparse.Namespace, load: float) -> None:
    machine = f"{os.cpu_count()} cores, load average {load:.1f} at the start"
    print(f"{options.rounds} exchanges of each kind, {options.workers} workers, {machine}; milliseconds of an exchange")
    print(f"{'pace':10}{'owner':11}{'median':>8}{'95%':>8}{'extra':>8}{'promised':>10}")
    for entry in found:
        for kind in ("known", *_PROMISED_SECONDS):
            seconds = getattr(entry, kind)
            last = statistics.quantiles(seconds, n=20)[-1]
            line = f"{entry.pace:10}{kind:11}{statistics.median(seconds) * 1000:8.1f}{last * 1000:8.1f}"
            if kind in _PROMISED_SECONDS:
                line += f"{entry.extra_seconds(kind) * 1000:8.1f}"
            if kind in _PROMISED_SECONDS and entry.pace == "paced":
                promised = _PROMISED_SECONDS[kind]
                line += f"{promised * 1000:10.0f}  {'kept' if entry.extra_seconds(kind) <= promised else 'MISSED'}"
            print(line)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-owners", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="exchanges of each kind at each pace, 2 or more (30)")
    parser.add_argument("--workers", type=int, default=2, help="workers of the pool (2)")
    options = parser.parse_args()
    if options.rounds < 2 or options.workers < 1:
        parser.error("--rounds takes 2 or more, --workers 1 or more")
    return options


if __name__ == "__main__":
    sys.exit(main())
