# SPDX-License-Identifier: Apache-2.0
"""Statements that write a table of each format."""

from __future__ import annotations

from dataclasses import dataclass

SMALL_FILES = 200
COLUMNS = (
    "id",
    "xxhash64(id) & 1099511627775 AS key",
    "if(id % 20 = 0, NULL, concat('city ', abs(xxhash64(id)) % 50)) AS city",
    "concat('customer#', xxhash64(id)) AS name",
    "cast(id * 7 % 12 AS int) AS code",
    "if(id % 20 = 1, NULL, cast(abs(xxhash64(id)) % 100 AS int)) AS quantity",
    "abs(xxhash64(id)) % 50000 / 100 AS amount",
    "xxhash64(id) / 4611686018427387904D AS score",
    "cast(abs(xxhash64(id)) % 30000 / 100 AS decimal(9, 2)) AS price",
    "timestamp_micros(1700000000000000 + id * 1000000 + abs(xxhash64(id)) % 900000) AS at",
    "date_add(DATE'2026-01-01', cast(abs(xxhash64(id)) % 365 AS int)) AS day",
    "xxhash64(id) % 3 = 0 AS flag",
)


@dataclass(frozen=True)
class Case:
    """Benchmark statement on a table.

    Attributes:
        title: name in tables.
        statement: timed statement; {t} is the table, {format} its format, {source} a Parquet table of the rows and {n}
            their number.
        table: statement that creates the table before the first run, untimed; empty if the timed statement creates it.
        runs: number of runs for each run of the largest case.
    """

    title: str
    statement: str
    table: str = ""
    runs: int = 1


_TABLE = "CREATE TABLE {t} USING {format} AS SELECT * FROM {source}"
_SMALL_FILES = f"CREATE TABLE {{t}} USING {{format}} AS SELECT /*+ REPARTITION({SMALL_FILES}) */ * FROM {{source}}"
_MERGE = (
    "MERGE INTO {t} t USING (SELECT * FROM {source} WHERE id < {n} / 10) s ON t.id = s.id"
    " WHEN MATCHED THEN UPDATE SET quantity = 1, name = s.name"
)
_COMPACTIONS = {
    "delta": "OPTIMIZE {t}",
    "iceberg": "CALL iceberg.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))",
}


def cases(table_format: str) -> dict[str, Case]:
    """Return the cases of a format by name."""
    return {
        "ctas": Case("CREATE TABLE AS SELECT", _TABLE),
        "merge": Case("MERGE that changes 10 % of the rows", _MERGE, _TABLE),
        "compaction": Case(f"compaction of {SMALL_FILES} files", _COMPACTIONS[table_format], _SMALL_FILES),
        "small": Case("INSERT of 10 rows", "INSERT INTO {t} SELECT * FROM {source} WHERE id < 10", _TABLE, runs=4),
    }
