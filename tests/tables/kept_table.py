# SPDX-License-Identifier: Apache-2.0
"""Table in either format after a fault. A Spark session that has not written the table reads and cleans it."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.support.spark import runtime_confs

TEXT = "sha2(cast(id AS string), 512)"
"""Third column of the table, computed from the second."""
_FOUR_DAYS_SECONDS = 4 * 24 * 3600


# Numbers for unique names, because a session caches every catalog that it has used.
_numbers = itertools.count(1)


def catalog_confs(catalog: str, warehouse: str) -> dict[str, str]:
    """Return the settings for an Iceberg catalog."""
    name = f"spark.sql.catalog.{catalog}"
    return {name: "org.apache.iceberg.spark.SparkCatalog", f"{name}.type": "hadoop", f"{name}.warehouse": warehouse}


class KeptTable:
    """Table in either format. A Spark session that has not written the table reads and cleans it."""

    def __init__(self, spark: SparkSession, table_format: str, root: Path) -> None:
        self._spark = spark
        self.format = table_format
        self.warehouse = root / "warehouse"
        self.directory = self.warehouse / "db" / "t"
        self.catalog = f"kept_{next(_numbers)}"
        self.name = f"delta.`{self.directory}`" if table_format == "delta" else f"{self.catalog}.db.t"
        self._log = "_delta_log" if table_format == "delta" else "metadata"

    @property
    def confs(self) -> dict[str, str]:
        """Settings of a session that uses the table."""
        return catalog_confs(self.catalog, str(self.warehouse))

    def create(self) -> None:
        self._spark.sql(f"CREATE TABLE {self.name} (batch BIGINT, id BIGINT, text STRING) USING {self.format}")

    def batches(self) -> dict[int, int]:
        """Return the number of rows of each batch, after checking that all rows are distinct and correct."""
        self._spark.catalog.clearCache()
        # Before Spark 4.1, a session keeps reading the snapshot of an Iceberg table that it has read before.
        self._spark.sql(f"REFRESH TABLE {self.name}")
        read = self._spark.sql(
            f"SELECT batch, count(*), count(DISTINCT id), count_if(NOT text <=> {TEXT}) FROM {self.name} GROUP BY batch"
        )
        found = read.collect()
        assert all(rows == different and not wrong for _, rows, different, wrong in found), found
        return {batch: rows for batch, rows, _, _ in found}

    def is_by_writer(self) -> bool:
        """Return whether the writer service made every data file that the table uses."""
        return all(str(pq.read_metadata(file).created_by).startswith("parquet-cpp") for file in self.in_use())

    def data(self) -> set[Path]:
        """Return all files that are not part of the log."""
        return {file for file in self._everything() if self._log not in file.relative_to(self.directory).parts}

    def log(self) -> set[Path]:
        """Return the files of the log, or of Iceberg's metadata."""
        return self._everything() - self.data()

    def _everything(self) -> set[Path]:
        files = {file for file in self.directory.rglob("*") if file.suffix != ".crc"}
        return {file for file in files if file.is_file()}

    def clean(self) -> None:
        """Delete files that no version of the table uses, with the format's own command."""
        if self.format == "delta":
            with runtime_confs(self._spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
                self._spark.sql(f"VACUUM {self.name} RETAIN 0 HOURS")
            return
        # Make the files old, because the command keeps files younger than three days.
        for file in self._everything():
            os.utime(file, (time.time() - _FOUR_DAYS_SECONDS,) * 2)
        self._spark.sql(f"CALL {self.catalog}.system.remove_orphan_files(table => 'db.t')")

    def in_use(self) -> set[Path]:
        """Return the data files that a version of the table uses after `clean`."""
        if self.format == "delta":
            files = self._spark.table(self.name).inputFiles()
        else:
            files = [row.file_path for row in self._spark.sql(f"SELECT file_path FROM {self.name}.all_files").collect()]
        return {Path(urlsplit(file).path) for file in files}
