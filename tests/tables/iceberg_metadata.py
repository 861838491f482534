# SPDX-License-Identifier: Apache-2.0
"""Metadata of an Iceberg table, without the values that differ between runs: names, sizes, times and snapshot ids."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import Row, SparkSession

_POSITION_DELETES = 1
_MEASURED = re.compile("size|spark.app.id|app-id|app-name|queryId|total-data-files-bytes")
# Sizes, positions and names differ between runs. The sizes of a file's row groups differ, but not their number.
_RANDOM = {
    "file_path",
    "file_size_in_bytes",
    "column_sizes",
    "split_offsets",
    "content_offset",
    "content_size_in_bytes",
}


def snapshots(spark: SparkSession, table: str) -> list[tuple[int, str]]:
    """Return the id of each snapshot, oldest first, and its summary."""
    found = spark.sql(f"SELECT * FROM {table}.snapshots").collect()
    found.sort(key=lambda row: (row.committed_at, row.snapshot_id))
    numbers = {row.snapshot_id: number for number, row in enumerate(found)}
    return [
        (
            row.snapshot_id,
            str(
                (
                    numbers.get(row.parent_id),
                    row.operation,
                    sorted(item for item in row.summary.items() if not _MEASURED.search(item[0])),
                )
            ),
        )
        for row in found
    ]


def entries(spark: SparkSession, table: str) -> list[str]:
    """Return the entries of all manifests: data files and delete files with their statistics."""
    numbers = {snapshot: number for number, (snapshot, _) in enumerate(snapshots(spark, table))}
    found = spark.sql(f"SELECT * FROM {table}.all_entries").collect()
    return sorted({str((row.status, numbers.get(row.snapshot_id), row.sequence_number, _file(row))) for row in found})


def _file(entry: Row) -> list[tuple[str, Any]]:
    fields = entry.data_file.asDict(recursive=True)
    kept = {name: value for name, value in fields.items() if name not in _RANDOM}
    kept["partition"] = str(fields.get("partition"))
    kept["sized_columns"] = sorted(fields["column_sizes"] or {})
    kept["row_groups"] = len(fields["split_offsets"] or [])
    if fields["content"] == _POSITION_DELETES:
        # The bounds are names of data files, which differ between runs.
        for name in ("lower_bounds", "upper_bounds"):
            kept[name] = sorted(fields[name] or {})
    kept["referenced_data_file"] = fields.get("referenced_data_file") is not None
    return sorted((name, str(value)) for name, value in kept.items())


def data_files(table: Path) -> list[Path]:
    """Return the files of all versions below the table, except metadata."""
    return [file for file in (table / "data").rglob("*") if file.is_file() and not file.name.startswith(".")]


def is_delete_file(file: Path) -> bool:
    """Return whether a file contains deletes, which Iceberg always writes itself."""
    return file.name.endswith((".puffin", "-deletes.parquet"))


def schemas(files: list[Path]) -> set[str]:
    """Return the files' Parquet schemas, with field ids and nullability, and the files' copies of Iceberg's schema."""
    found = set()
    for file in files:
        metadata = pq.read_metadata(file)
        ours = {key: value for key, value in (metadata.metadata or {}).items() if key != b"ARROW:schema"}
        schema = metadata.schema
        columns = [
            (column.path, column.physical_type, str(column.logical_type), column.max_definition_level)
            for column in (schema.column(index) for index in range(len(schema.names)))
        ]
        found.add(str((columns, re.findall(r"field_id=\d+ [^ ]+", str(schema)), sorted(ours.items()))))
    return found
