# SPDX-License-Identifier: Apache-2.0
"""Table of a case, in the Spark session of one variant."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from tests.programs.bench.formats_cases import Case
from tests.programs.bench.formats_session import Run, Session


class OtherWriterError(Exception):
    """Raised if another writer than the variant's made the files, because the times would be misleading."""


@dataclass(frozen=True)
class TableRun(Run):
    """Time and memory of one run, and the size of the table after the run.

    Attributes:
        file_bytes: bytes of the table's data files after the run, including replaced files.
    """

    file_bytes: int


class Table:
    """Table that a case creates, and that the program restores after each run."""

    def __init__(self, session: Session, table_format: str, case: Case, source: Path, rows: int):
        self._session, self._format, self._case = session, table_format, case
        # Spark keeps the tables of its default database directly in the warehouse.
        catalog, place = {
            "delta": ("spark_catalog.default", "delta"),
            "iceberg": ("iceberg.bench", "iceberg/bench"),
        }[table_format]
        self._name, self._directory = f"{catalog}.t", session.directory / place / "t"
        self._values = {"t": self._name, "format": table_format, "source": f"parquet.`{source}`", "n": str(rows)}
        self._version = ""
        if case.table:
            session.do(case.table.format(**self._values))
            newest = {
                "delta": f"DESCRIBE HISTORY {self._name} LIMIT 1",
                "iceberg": f"SELECT max_by(snapshot_id, committed_at) FROM {self._name}.snapshots",
            }
            self._version = session.value(newest[table_format])

    def run(self) -> TableRun:
        """Run the statement; raises OtherWriterError."""
        run = self._session.run(self._case.statement.format(**self._values))
        files = [file for file in self._directory.rglob("*.parquet") if "_delta_log" not in file.parts]
        newest = max(files, key=lambda file: file.stat().st_mtime_ns)
        made_by = str(pq.read_metadata(newest).created_by)
        if not made_by.startswith(self._session.variant.made_by):
            raise OtherWriterError(f"{self._session.name}: {newest} was made by {made_by}")
        file_bytes = sum(file.stat().st_size for file in files)
        self._go_back()
        return TableRun(run.wall_s, run.cpu_s, run.peak_bytes, file_bytes)

    def drop(self) -> None:
        """Drop the table and its files."""
        self._session.do(f"DROP TABLE IF EXISTS {self._name}" + (" PURGE" if self._format == "iceberg" else ""))
        shutil.rmtree(self._directory, ignore_errors=True)

    def _go_back(self) -> None:
        if not self._version:
            self.drop()
        elif self._format == "delta":
            self._session.do(f"RESTORE TABLE {self._name} TO VERSION AS OF {self._version}")
        else:
            self._session.do(f"CALL iceberg.system.rollback_to_snapshot('{self._name}', {self._version})")
