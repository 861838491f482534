# SPDX-License-Identifier: Apache-2.0
"""A thousand fixed seeds hold every invariant, and a seed alone decides what happens."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.simulation.seeds import explained, failures
from tests.simulation.simulate import simulate
from tests.support.paths import REPOSITORY

SEEDS = 1000


def test_a_thousand_seeds_hold_every_invariant_twice_with_the_same_trace() -> None:
    found = [explained(outcome) for outcome in failures(range(SEEDS), processes=2)]
    assert not found, "\n".join(found)


def test_a_seed_has_the_same_trace_in_another_process_with_another_hash_seed() -> None:
    seeds = range(5)
    program = f"from tests.simulation.simulate import simulate\nfor s in {list(seeds)}: print(simulate(s).digest)"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        printed = subprocess.run(
            [sys.executable, "-c", program], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
        ).stdout
        assert printed.split() == [simulate(seed).digest for seed in seeds]
