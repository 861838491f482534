# SPDX-License-Identifier: Apache-2.0
"""Records of measurements and simulations, in build/scale."""

from __future__ import annotations

import json
from dataclasses import asdict

from tests.simulation.scale.measured import Calibration, Figures
from tests.simulation.scale.one_pool import OnePool
from tests.simulation.scale.scenarios import SCENARIOS, Bin, Outcome, simulate
from tests.support.paths import BUILD

_RECORDS = BUILD / "scale"


def keep(name: str, record: Calibration | Outcome | OnePool) -> None:
    """Write a record."""
    _RECORDS.mkdir(parents=True, exist_ok=True)
    (_RECORDS / f"{name}.json").write_text(json.dumps(asdict(record), indent=1) + "\n")


def calibration() -> Calibration:
    """Return the last calibration."""
    record = json.loads((_RECORDS / "calibration.json").read_text())
    measured, simulated = (Figures(**record[side]) for side in ("measured", "simulated"))
    return Calibration(record["overhead_seconds"], measured, simulated, record["load_average"])


def outcome(name: str) -> Outcome:
    """Return the last outcome of this name."""
    record = json.loads((_RECORDS / f"{name}.json").read_text())
    return Outcome(bins=tuple(Bin(**each) for each in record.pop("bins")), **record)


def one_pool(name: str) -> OnePool:
    """Return the last figures of this name."""
    return OnePool(**json.loads((_RECORDS / f"{name}.json").read_text()))


def run(name: str, scenario: str, scale: float, queue_limit: int) -> str:
    """Simulate a scenario and store the outcome under this name; return the name."""
    found = next(each for each in SCENARIOS if each.name == scenario)
    keep(name, simulate(found, scale=scale, queue_limit=queue_limit))
    return name
