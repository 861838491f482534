# SPDX-License-Identifier: Apache-2.0
"""What a case has to show against the best of stock's configurations; `check.py` looks whether it does."""

from __future__ import annotations

from dataclasses import dataclass

from tests.programs.bench.chart import Ratios


@dataclass(frozen=True)
class Target:
    """`speed`: times that of stock, at least. `cpu`: share of stock's CPU time, at most."""

    speed: float
    cpu: float | None = None

    def is_met_by(self, measured: Ratios) -> bool:
        """Whether measured ratios are good enough."""
        return measured.speed >= self.speed and (self.cpu is None or measured.cpu <= self.cpu)


LIGHTEST = Target(speed=1.4, cpu=0.75)
LIGHT = Target(speed=1.2)
"""Arrow and pandas functions that do little: data transfer dominates their cost."""
PYTHON_ROWS = Target(speed=1.0)
"""Functions that Python calls row by row, or frame by frame."""
REPEATED = Target(speed=20.0, cpu=0.1)
"""A slow function of few values, which is called once for each."""
HEAVY = Target(speed=0.97)
"""Functions whose own work is what takes time: as fast as stock, give or take what a measurement varies."""
