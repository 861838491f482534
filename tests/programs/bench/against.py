# SPDX-License-Identifier: Apache-2.0
"""`make bench-against BASE=../checkout`: cost of UDFs with this tree's pool and connector against another checkout's.

`make setup connector` must have run in each checkout. Each checkout starts its own pool and Spark with its own code.
Both checkouts run the same case in turn, in random order within each pair, so noise affects both equally. The program
prints the median ratio of this tree's cost to the other checkout's, in CPU seconds of all processes and in wall
seconds, with the 95% confidence interval of the median. There are no targets.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import math
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.programs.bench.cases import CASES
from tests.support.paths import BUILD, REPOSITORY

_DIRECTORY = BUILD / "bench"
# Program that runs in each checkout with the checkout's own code, so changes to the benchmark affect the result too.
_RUNNER = """
import json, os, sys, tempfile
from pathlib import Path
from tests.programs.bench.cases import CASES
from tests.programs.bench.spark_process import spark_processes
from tests.programs.bench.variants import VARIANTS
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
cases = {case.name: case for case in CASES}
variants = [variant for variant in VARIANTS if variant.name == "updraft"]
with tempfile.TemporaryDirectory() as data, spark_processes(variants, Path(data)) as (process,):
    print(json.dumps("ready"), file=answers)
    for line in sys.stdin:
        name, rows = json.loads(line)
        print(json.dumps(process.run(cases[name], rows)), file=answers)
"""
_CONFIDENCE = 0.95

Runner = subprocess.Popen[str]
_IN_MEMORY = [case for case in CASES if case.table is None]


@dataclass
class Pairs:
    """Runs of a case in pairs: one of this tree and one of the other checkout."""

    case: str
    rows: int
    cpu_s: list[tuple[float, float]] = field(default_factory=list)
    wall_s: list[tuple[float, float]] = field(default_factory=list)


def main() -> int:
    """Measure, write build/bench/against.json and print the table."""
    options = _options()
    load = os.getloadavg()[0]
    found = [Pairs(case.name, case.scaled(options.rows_scale)) for case in options.cases]
    _DIRECTORY.mkdir(parents=True, exist_ok=True)
    for start in range(1, options.starts + 1):
        with _runner(REPOSITORY) as ours, _runner(options.base) as theirs:
            for pairs in found:
                _measure(pairs, ours, theirs, options)
                (_DIRECTORY / "against.json").write_text(
                    json.dumps([asdict(entry) for entry in found], indent=1) + "\n"
                )
                print(f"measured {pairs.case}, start {start} of {options.starts}", flush=True)
    _print(found, options, load)
    return 0


def _measure(pairs: Pairs, ours: Runner, theirs: Runner, options: argparse.Namespace) -> None:
    order = random.Random(pairs.case)
    for number in range(options.warm_up + options.pairs):
        sides = order.sample([ours, theirs], 2)
        seconds = {id(side): _run(side, pairs) for side in sides}
        if number >= options.warm_up:
            (our_wall, our_cpu), (their_wall, their_cpu) = seconds[id(ours)], seconds[id(theirs)]
            pairs.wall_s.append((our_wall, their_wall))
            pairs.cpu_s.append((our_cpu, their_cpu))


@contextlib.contextmanager
def _runner(checkout: Path) -> Iterator[Runner]:
    process = subprocess.Popen(
        [checkout / ".venv/bin/python", "-c", _RUNNER],
        cwd=checkout,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    with process:
        try:
            _answer(process, checkout)
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()


def _run(process: Runner, pairs: Pairs) -> tuple[float, float]:
    """Return the wall and CPU seconds of one run."""
    assert process.stdin is not None
    process.stdin.write(json.dumps([pairs.case, pairs.rows]) + "\n")
    wall, cpu = _answer(process, pairs.case)
    return wall, cpu


def _answer(process: Runner, what: object) -> tuple[float, float]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"bench-against: {what} gave no answer: see above")
    answer: tuple[float, float] = json.loads(line)
    return answer


def _print(found: Sequence[Pairs], options: argparse.Namespace, load: float) -> None:
    machine = f"{os.cpu_count()} cores, load average {load:.1f} at the start"
    print(f"{options.starts} x {options.pairs} pairs, {machine}; this tree / {options.base}")
    print(f"{'case':24}{'CPU':>8}{'interval':>16}{'wall':>8}{'interval':>16}")
    for pairs in found:
        print(f"{pairs.case:24}{_columns(pairs.cpu_s)}{_columns(pairs.wall_s)}")
    of_all = [(ours, theirs) for pairs in found for ours, theirs in pairs.cpu_s]
    print(f"{'all':24}{_columns(of_all)}")


def _columns(seconds: Sequence[tuple[float, float]]) -> str:
    ratios = sorted(ours / theirs for ours, theirs in seconds)
    beyond = outside(len(ratios))
    interval = f"{ratios[beyond]:.3f}-{ratios[-1 - beyond]:.3f}"
    return f"{statistics.median(ratios):8.3f}{interval:>16}"


def outside(count: int) -> int:
    """Return how many of `count` sorted values to omit at each end to get the interval of the true median.

    Each value is below the true median with a probability of one half.
    """
    below, chance = 0, 0.0
    while chance + math.comb(count, below) / 2**count <= (1 - _CONFIDENCE) / 2:
        chance += math.comb(count, below) / 2**count
        below += 1
    return max(0, below - 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench-against", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", type=Path, required=True, help="the other checkout")
    names = "only these: names or patterns such as 'window_*' (all that read no table)"
    parser.add_argument("--cases", nargs="+", default=["*"], help=names)
    parser.add_argument(
        "--starts", type=int, default=3, help="start both so often: what a JVM makes of a case varies (3)"
    )
    parser.add_argument("--pairs", type=int, default=8, help="counted runs of each case in each checkout and start (8)")
    parser.add_argument("--warm-up", type=int, default=5, help="runs before those (5)")
    parser.add_argument("--rows-scale", type=float, default=1.0, help="multiplies every number of rows (1)")
    options = parser.parse_args()
    options.base = options.base.resolve()
    if not (options.base / ".venv/bin/python").exists():
        parser.error(f"{options.base} is not set up: run `make setup connector` there")
    options.cases = [case for case in _IN_MEMORY if any(fnmatch.fnmatch(case.name, name) for name in options.cases)]
    if not options.cases:
        parser.error("no case that reads no table is called that")
    return options


if __name__ == "__main__":
    sys.exit(main())
