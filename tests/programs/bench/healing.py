# SPDX-License-Identifier: Apache-2.0
"""`make bench-healing`: time from a kill of one of a pool's processes until the pool is whole again.

The program kills each kind of process in an idle pool and in a pool with busy workers. If it kills the supervisor, the
time ends when the whole pool is gone. No test asserts these times. The program prints medians and maxima next to the
promise; the exit status is 1 if a median misses the promise. The machine should do nothing else: the header shows its
load.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

from tests.faults.traffic import Traffic
from tests.faults.victims import VICTIMS, kill, wait_until_gone, wait_until_whole
from tests.support.paths import BUILD
from tests.support.pool import LocalPool

_DIRECTORY = BUILD / "bench"
_PROMISED_SECONDS = 1.0
_CALLERS = 2
# Kills in one pool, few enough that the supervisor does not give up: it does after five deaths within ten seconds.
_KILLS_OF_A_POOL = 3
_SUPERVISOR = "supervisor"


@dataclass
class Healing:
    """Seconds that a pool took to heal after each kill of one kind of process."""

    victim: str
    load: str
    seconds: list[float] = field(default_factory=list)

    @property
    def is_in_time(self) -> bool:
        """Whether the median keeps the promise. A slow recovery is allowed, because the machine may be busy."""
        return statistics.median(self.seconds) <= _PROMISED_SECONDS


def main() -> int:
    """Measure, write build/bench/healing.json, print the table; return 1 if a promise is missed."""
    options, load = _options(), os.getloadavg()[0]
    found = [*measure(options.rounds, options.workers), _supervisor(options.rounds, options.workers)]
    _DIRECTORY.mkdir(parents=True, exist_ok=True)
    (_DIRECTORY / "healing.json").write_text(json.dumps([asdict(entry) for entry in found], indent=1) + "\n")
    _print(found, options, load)
    return 0 if all(entry.is_in_time for entry in found) else 1


def measure(rounds: int, workers: int) -> Iterator[Healing]:
    """Kill each kind of process in idle and in busy pools, and let the pool heal before the next kill."""
    for load, victim in itertools.product(("idle", "busy"), VICTIMS):
        healing = Healing(victim, load)
        while (left := rounds - len(healing.seconds)) > 0:
            with LocalPool(workers=workers) as pool, _traffic(pool, load) as traffic:
                for _ in range(min(left, _KILLS_OF_A_POOL)):
                    if traffic is not None:
                        traffic.wait_for_progress()
                    killed = kill(pool, victim)
                    started = time.monotonic()
                    wait_until_whole(pool, killed, workers)
                    healing.seconds.append(round(time.monotonic() - started, 3))
        yield healing


def _traffic(pool: LocalPool, load: str) -> contextlib.AbstractContextManager[Traffic | None]:
    return Traffic(pool.tcp_address, callers=_CALLERS) if load == "busy" else contextlib.nullcontext()


def _supervisor(rounds: int, workers: int) -> Healing:
    """Kill supervisors, and measure until every process of the pool has ended and its ports are free again."""
    found = Healing(_SUPERVISOR, "idle")
    for _ in range(rounds):
        with LocalPool(workers=workers) as pool:
            family = pool.members()
            addresses = (pool.tcp_address, pool.admin_address, pool.metrics_address)
            family[0].kill()
            started = time.monotonic()
            wait_until_gone(family, addresses)
            found.seconds.append(round(time.monotonic() - started, 3))
    return found


def _print(found: Sequence[Healing], options: argparse.Namespace, load: float) -> None:
    machine = f"{os.cpu_count()} cores, load average {load:.1f} at the start"
    print(
        f"{options.rounds} kills each, {options.workers} workers, {machine}; seconds until the pool is whole, or gone"
    )
    print(f"{'killed':12}{'pool':8}{'until':8}{'median':>8}{'maximum':>9}{'promised':>10}")
    for entry in found:
        until = "gone" if entry.victim == _SUPERVISOR else "whole"
        print(
            f"{entry.victim:12}{entry.load:8}{until:8}{statistics.median(entry.seconds):8.2f}{max(entry.seconds):9.2f}"
            f"{_PROMISED_SECONDS:10.2f}  {'kept' if entry.is_in_time else 'MISSED'}"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-healing", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="kills of each process under each load (10)")
    parser.add_argument("--workers", type=int, default=2, help="workers of the pool (2)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
