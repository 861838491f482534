# SPDX-License-Identifier: Apache-2.0
"""Runs of many seeds, where two runs of one seed must leave the same trace."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.simulate import Outcome, simulate
from tests.support.paths import REPOSITORY

_CHUNK = 50


def checked(seed: int) -> Outcome:
    """Run a seed twice; different traces are a violation."""
    first, second = simulate(seed), simulate(seed)
    if first.digest != second.digest:
        return first._replace(violation="two runs of this seed differ")
    return first


def failures(seeds: Iterable[int], *, processes: int, twice_every: int = 1) -> Iterator[Outcome]:
    """Yield the outcome of each seed that violates an invariant, soon after its run.

    Seeds that are divisible by `twice_every` run twice.
    """
    failures_of = functools.partial(_failures_of, twice_every)
    chunks: list[list[int]] = []
    for seed in seeds:
        if not chunks or len(chunks[-1]) == _CHUNK:
            chunks.append([])
        chunks[-1].append(seed)
    if processes == 1:
        for chunk in chunks:
            yield from failures_of(chunk)
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("forkserver")) as pool:
        for found in pool.map(failures_of, chunks):
            yield from found


def _failures_of(twice_every: int, seeds: list[int]) -> list[Outcome]:
    # Runs leave little garbage, and collecting it takes a sixth of the time.
    gc.disable()
    try:
        outcomes = (simulate(seed) if seed % twice_every else checked(seed) for seed in seeds)
        return [outcome for outcome in outcomes if outcome.violation]
    finally:
        gc.enable()
        gc.collect()


def explained(outcome: Outcome) -> str:
    """Return a description of a failure, with the command that repeats it."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=REPOSITORY
    ).stdout.strip()
    return (
        f"seed {outcome.seed} at commit {commit or 'unknown'}: {outcome.violation}\n"
        f"  .venv/bin/python -m tests.simulation --seed {outcome.seed}"
    )
