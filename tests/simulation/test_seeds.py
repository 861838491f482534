# SPDX-License-Identifier: Apache-2.0
"""No invariant fails in a thousand fixed seeds, and a seed alone determines what happens."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tests.simulation.seeds import checked, explained, failures
from tests.simulation.simulate import Outcome, simulate
from tests.simulation.world import World
from tests.support.paths import REPOSITORY

SEEDS = 1000
# A second run can differ only because of chance that the seed does not determine.
TWICE_EVERY = 5


def test_a_thousand_seeds_hold_every_invariant_and_a_second_run_leaves_the_same_trace() -> None:
    found = [explained(outcome) for outcome in failures(range(SEEDS), processes=2, twice_every=TWICE_EVERY)]
    assert not found, "\n".join(found)


def test_only_every_second_seed_runs_twice_if_the_caller_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = World.seconds
    monkeypatch.setattr(World, "seconds", lambda world, mean: seconds(world, mean) + random.random() * 1e-3)
    found = [outcome.seed for outcome in failures(range(4), processes=1, twice_every=2)]
    assert found == [0, 2]


def test_chance_that_no_seed_decides_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked(3).violation == ""
    seconds = World.seconds
    monkeypatch.setattr(World, "seconds", lambda world, mean: seconds(world, mean) + random.random() * 1e-3)
    assert checked(3).violation == "two runs of this seed differ"


def test_a_failure_names_its_seed_its_commit_and_the_command_that_repeats_it() -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    ).stdout.strip()
    assert explained(Outcome(77, "", "a row is lost", 0, [])) == (
        f"seed 77 at commit {commit or 'unknown'}: a row is lost\n  .venv/bin/python -m tests.simulation --seed 77"
    )


def test_a_seed_has_the_same_trace_in_another_process_with_another_hash_seed() -> None:
    seeds = range(5)
    program = f"from tests.simulation.simulate import simulate\nfor s in {list(seeds)}: print(simulate(s).digest)"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        printed = subprocess.run(
            [sys.executable, "-c", program], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
        ).stdout
        assert printed.split() == [simulate(seed).digest for seed in seeds]
