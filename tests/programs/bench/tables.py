# SPDX-License-Identifier: Apache-2.0
"""Parquet tables that cases read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PARTITIONS = 4
_PASSED_COLUMNS = 10


@dataclass(frozen=True)
class Table:
    """Table that the benchmark writes once for each number of rows."""

    name: str
    make: Callable[[int], pa.Table]
    files: int = PARTITIONS

    def path(self, directory: Path, rows: int) -> Path:
        """Return the folder of the table."""
        return directory / f"{self.name}-{rows}"

    def write(self, directory: Path, rows: int) -> None:
        """Write the table unless it exists."""
        target = self.path(directory, rows)
        if target.exists():
            return
        table, unfinished = self.make(rows), target.with_suffix(".partial")
        unfinished.mkdir(parents=True, exist_ok=True)
        part = -(-rows // self.files)
        for index in range(self.files):
            pq.write_table(table.slice(index * part, part), unfinished / f"part-{index}.parquet", use_dictionary=False)
        unfinished.rename(target)


def _numbers(rows: int) -> pa.Table:
    chance = np.random.default_rng(1)
    return pa.table({name: chance.integers(0, 2**40, rows) for name in "abc"})


def _texts(rows: int, length: int) -> pa.Table:
    letters = np.random.default_rng(2).integers(97, 123, rows * length, dtype=np.uint8)
    offsets = np.arange(0, (rows + 1) * length, length, dtype=np.int32)
    return pa.table({"text": pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))})


def _wide(rows: int) -> pa.Table:
    chance = np.random.default_rng(3)
    passed = {f"p{index}": chance.random(rows) for index in range(_PASSED_COLUMNS - 1)}
    text = pa.array([f"row {index}" for index in range(rows)])
    return pa.table({"a": chance.integers(0, 2**40, rows), **passed, "text": text})


NUMBERS = Table("numbers", _numbers)
MANY_FILES = Table("many-files", _numbers, files=10)
STRINGS = Table("strings", partial(_texts, length=100))
TEXTS = Table("texts", partial(_texts, length=200))
WIDE = Table("wide", _wide)
