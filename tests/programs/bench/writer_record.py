# SPDX-License-Identifier: Apache-2.0
"""Records of the writer's benchmark as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.programs.bench.record import Runs


@dataclass
class Measured(Runs):
    """Runs of one variant of one case; `quota_mib` and `peak_bytes` are those of the service, if there is one."""

    case: str
    variant: str
    raw_bytes: int
    quota_mib: int = 0
    file_bytes: int = 0
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)

    @property
    def raw_mb_per_cpu_s(self) -> float:
        """Raw megabytes per second of CPU time."""
        return self.raw_bytes / 1e6 / self.median_cpu_s

    @property
    def peak_mib(self) -> float:
        """Largest growth of the service's memory over all runs."""
        return max(self.peak_bytes) / (1 << 20)


def read(path: Path) -> list[Measured]:
    """Return the records in a file; an empty list if it does not exist."""
    return [Measured(**entry) for entry in json.loads(path.read_text())] if path.exists() else []


def write(measured: Iterable[Measured], path: Path) -> None:
    """Replace the file with these records."""
    path.write_text(json.dumps([asdict(entry) for entry in measured], indent=1) + "\n")
