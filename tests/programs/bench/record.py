# SPDX-License-Identifier: Apache-2.0
"""Benchmark records as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.support.paths import BUILD
from tests.support.spark import SPARK_VERSION
from updraft.spark.jars import JARS

_SPARK = "{}.{}".format(*SPARK_VERSION)
MEASURED = BUILD / "bench" if next(iter(JARS)) == _SPARK else BUILD / "bench" / f"spark-{_SPARK}"
"""Folder for the results of `make bench-udf`. Older Sparks use other folders: the page shows the newest."""


class Runs:
    """Seconds of each run."""

    wall_s: list[float]
    cpu_s: list[float]

    @property
    def median_wall_s(self) -> float:
        """Median wall seconds of the counted runs."""
        return statistics.median(self.wall_s)

    @property
    def median_cpu_s(self) -> float:
        """Median CPU seconds of the counted runs."""
        return statistics.median(self.cpu_s)


@dataclass
class Record(Runs):
    """Runs of one variant of one case. A variant that is too slow in the warm-up has no counted runs."""

    case: str
    variant: str
    rows: int
    warm_up_wall_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)


def pooled(records: Iterable[Record]) -> list[Record]:
    """Merge records of the same case and variant."""
    pools: dict[tuple[str, str], Record] = {}
    for record in records:
        pool = pools.setdefault((record.case, record.variant), Record(record.case, record.variant, record.rows))
        pool.warm_up_wall_s += record.warm_up_wall_s
        pool.wall_s += record.wall_s
        pool.cpu_s += record.cpu_s
    return list(pools.values())


def read(path: Path) -> list[Record]:
    """Return the records in a file; an empty list if it does not exist."""
    return [Record(**entry) for entry in json.loads(path.read_text())] if path.exists() else []


def write(records: Iterable[Record], path: Path) -> None:
    """Replace the file with these records."""
    path.write_text(json.dumps([asdict(record) for record in records], indent=1) + "\n")
