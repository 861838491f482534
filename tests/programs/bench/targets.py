# SPDX-License-Identifier: Apache-2.0
"""Targets of cases relative to the best stock configuration; `check.py` compares measurements with them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.programs.bench.chart import Ratios


@dataclass(frozen=True)
class Target:
    """Target of a case. `speed`: least multiple of stock's speed. `cpu`: largest share of stock's CPU time."""

    speed: float
    cpu: float | None = None

    def is_met_by(self, measured: Ratios) -> bool:
        """Return whether measured ratios meet the target."""
        return measured.speed >= self.speed and (self.cpu is None or measured.cpu <= self.cpu)


LIGHTEST = Target(speed=1.4, cpu=0.75)
LIGHT = Target(speed=1.2)
"""Arrow and pandas functions that compute little, so that data transfer dominates their cost."""
PYTHON_ROWS = Target(speed=1.0)
"""Functions that Python calls for each row or for each frame."""
REPEATED = Target(speed=20.0, cpu=0.1)
"""Slow function of few distinct values. Updraft calls the function once for each value."""
STREAM = Target(speed=1.0)
"""Small micro-batches: at least as fast as stock, because Spark plans and records each micro-batch on both sides."""
HEAVY = Target(speed=0.97)
"""Functions that compute a lot: as fast as stock, within the error of measurement."""
