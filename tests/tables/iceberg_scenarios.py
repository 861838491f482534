# SPDX-License-Identifier: Apache-2.0
"""Writes of Iceberg tables, on the topics of Iceberg's own tests. A table's namespace is that of stock or ours."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.tables.scenarios import (
    COLUMNS,
    DELETE,
    INSERT,
    MERGE,
    ROWS,
    TYPES,
    UPDATE,
    Place,
    Scenario,
    source,
    stream_upserts,
)

_MERGE_ON_READ = (
    "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read'"
)
_COMPACT = "CALL iceberg.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))"


def _table_of(query: str, clauses: str = "") -> str:
    return f"CREATE TABLE {{t}} USING iceberg {clauses} AS {query}"


def _create(columns: str, properties: str = "", clauses: str = "") -> str:
    return f"CREATE TABLE {{t}} ({columns}) USING iceberg {clauses} TBLPROPERTIES ({properties or _NO_PROPERTIES})"


_NO_PROPERTIES = "'comment' = ''"
_CREATE = _table_of(ROWS)
_PARTITIONED = _table_of(ROWS, "PARTITIONED BY (k)")


def _sorted_by(order: str) -> str:
    options = f"strategy => 'sort', sort_order => '{order}', options => map('rewrite-all', 'true')"
    return f"CALL iceberg.system.rewrite_data_files(table => '{{t}}', {options})"


def _with(properties: str, clauses: str = "") -> tuple[str, str]:
    return _create(COLUMNS, properties, clauses), INSERT


def _append(spark: SparkSession, place: Place) -> None:
    spark.sql(ROWS).writeTo(place.table).append()


def _append_in_batches(spark: SparkSession, place: Place) -> None:
    """Append rows of a columnar scan that omits some columns and reorders others."""
    spark.sql(ROWS).write.parquet(str(place.scratch / "rows"))
    spark.read.parquet(str(place.scratch / "rows")).select("s", "id").writeTo(place.table).append()


def _append_snappy(spark: SparkSession, place: Place) -> None:
    spark.sql(ROWS).writeTo(place.table).option("compression-codec", "snappy").append()


def _append_avro(spark: SparkSession, place: Place) -> None:
    spark.sql(ROWS).writeTo(place.table).option("write-format", "avro").append()


def _overwrite_where(spark: SparkSession, place: Place) -> None:
    spark.sql(ROWS).where("k = 1").writeTo(place.table).overwrite(F.col("k") == 1)


def _overwrite_partitions(spark: SparkSession, place: Place) -> None:
    spark.sql(ROWS).where("k = 1").limit(5).writeTo(place.table).overwritePartitions()


def _replace(spark: SparkSession, place: Place) -> None:
    spark.sql(ROWS).selectExpr("s AS name", "id AS number").writeTo(place.table).using("iceberg").createOrReplace()


def _merge_schema(spark: SparkSession, place: Place) -> None:
    frame = spark.sql(ROWS).selectExpr("*", "id / 3 AS added")
    frame.writeTo(place.table).option("mergeSchema", "true").append()


def _tiny_integers(spark: SparkSession, place: Place) -> None:
    frame = spark.range(0, 9, 1, 1).selectExpr("cast(id AS tinyint) AS id")
    frame.writeTo(place.table).option("mergeSchema", "true").append()


def _stream(spark: SparkSession, place: Place) -> None:
    writer = source(spark, place).writeStream.format("iceberg").trigger(availableNow=True)
    writer.option("checkpointLocation", str(place.scratch / "checkpoint")).toTable(place.table).awaitTermination(250)


_MORE_TYPES = (
    *TYPES,
    "cast(id / 7 AS decimal(18, 2)) AS middle_decimal",
    "array(named_struct('a', map(id, array(id / 2)))) AS deep",
)
_FLOATS = "(double('NaN'), float('NaN')), (1.5D, 1.5F), (double('-Infinity'), NULL), (NULL, -0.0F), (-0.0D, 0.0F)"
_LONG = "repeat(chr(cast(97 + id AS int)), 50) AS a, repeat('\U0001f600', 40) AS b, repeat('z', 3000) AS c"
_DAYS_AND_TEXTS = (
    "SELECT id, timestamp_micros(1767225600000000 + id * 3600000000) AS at,"
    " if(id % 4 = 0, NULL, concat('a/b=', id % 2)) AS s FROM range(0, 40, 1, 1)"
)
_HIDDEN = "PARTITIONED BY (days(at), bucket(2, id), truncate(s, 3))"

SCENARIOS: dict[str, Scenario] = {
    "ctas": Scenario([_CREATE]),
    "ctas_partitioned": Scenario([_PARTITIONED]),
    "ctas_no_rows": Scenario([_table_of(f"SELECT * FROM ({ROWS}) WHERE id < 0")]),
    "rtas": Scenario([_CREATE, "CREATE OR REPLACE TABLE {t} USING iceberg AS SELECT id AS y FROM range(0, 9, 1, 1)"]),
    "replace": Scenario([_CREATE, _replace]),
    "insert": Scenario([_CREATE, INSERT]),
    "insert_values": Scenario([_CREATE, "INSERT INTO {t} VALUES (1, 2, 3, NULL), (NULL, NULL, NULL, 'last')"]),
    "insert_no_rows": Scenario([_CREATE, f"INSERT INTO {{t}} SELECT * FROM ({ROWS}) WHERE id < 0"]),
    "insert_overwrite": Scenario([_CREATE, f"INSERT OVERWRITE {{t}} {ROWS} LIMIT 3"]),
    "insert_overwrite_partition": Scenario(
        [_PARTITIONED, "INSERT OVERWRITE {t} PARTITION (k = 1) SELECT id, 0, 'new' FROM range(0, 9, 1, 1)"]
    ),
    "insert_overwrite_dynamic": Scenario(
        [_PARTITIONED, f"INSERT OVERWRITE {{t}} SELECT * FROM ({ROWS}) WHERE k = 1"],
        {"spark.sql.sources.partitionOverwriteMode": "dynamic"},
    ),
    "append": Scenario([_CREATE, _append]),
    "append_of_a_columnar_scan": Scenario([_create("s STRING, id BIGINT"), _append_in_batches]),
    "append_snappy": Scenario([_CREATE, _append_snappy]),
    "append_avro": Scenario([_create(COLUMNS), _append_avro], by_writer=False),
    "overwrite_where": Scenario([_PARTITIONED, _overwrite_where]),
    "overwrite_partitions": Scenario([_PARTITIONED, _overwrite_partitions]),
    "merge_schema": Scenario([_create(COLUMNS, "'write.spark.accept-any-schema' = 'true'"), INSERT, _merge_schema]),
    "rows_of_a_smaller_type": Scenario(
        [_create("id INT", "'write.spark.accept-any-schema' = 'true'"), _tiny_integers], by_writer=False
    ),
    "update": Scenario([_CREATE, UPDATE]),
    "delete": Scenario([_CREATE, DELETE]),
    "delete_partitions": Scenario([_PARTITIONED, "DELETE FROM {t} WHERE k = 1", DELETE]),
    "merge": Scenario([_CREATE, MERGE]),
    "merge_partitioned": Scenario([_PARTITIONED, MERGE]),
    "merge_on_read": Scenario([*_with(_MERGE_ON_READ), DELETE, UPDATE, MERGE]),
    "merge_on_read_partitioned": Scenario([*_with(_MERGE_ON_READ, "PARTITIONED BY (k)"), DELETE, UPDATE, MERGE]),
    "lineage": Scenario([*_with("'format-version' = '3'"), UPDATE, DELETE, MERGE, _COMPACT]),
    "deletion_vectors": Scenario([*_with(f"'format-version' = '3', {_MERGE_ON_READ}"), DELETE, UPDATE, MERGE]),
    "version_1": Scenario([*_with("'format-version' = '1'"), UPDATE]),
    "compaction": Scenario([_CREATE, INSERT, INSERT, _COMPACT]),
    "compaction_of_a_partition": Scenario(
        [_PARTITIONED, INSERT, "CALL iceberg.system.rewrite_data_files(table => '{t}', where => 'k = 1')", _COMPACT]
    ),
    "compaction_sorted": Scenario(
        [
            _CREATE,
            INSERT,
            _sorted_by("s DESC"),
        ]
    ),
    "compaction_zorder": Scenario(
        [
            _CREATE,
            INSERT,
            _sorted_by("zorder(x, s)"),
        ]
    ),
    "hidden_partitions": Scenario([_table_of(_DAYS_AND_TEXTS, _HIDDEN)]),
    "fan_out": Scenario(
        [
            _table_of(
                _DAYS_AND_TEXTS,
                f"{_HIDDEN} TBLPROPERTIES ('write.spark.fanout.enabled' = 'true', 'write.distribution-mode' = 'none')",
            )
        ]
    ),
    "range_distribution": Scenario([*_with("'write.distribution-mode' = 'range'", "PARTITIONED BY (k)")]),
    "sort_order": Scenario([_create(COLUMNS), "ALTER TABLE {t} WRITE ORDERED BY s DESC, id", INSERT, UPDATE]),
    "evolved_partitions": Scenario([_PARTITIONED, "ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)", INSERT, UPDATE]),
    "evolved_columns": Scenario(
        [
            _CREATE,
            "ALTER TABLE {t} DROP COLUMN x",
            "ALTER TABLE {t} RENAME COLUMN s TO words",
            "ALTER TABLE {t} ADD COLUMN x STRING",
            "INSERT INTO {t} SELECT id, 0, 'w', 'x' FROM range(0, 9, 1, 1)",
        ]
    ),
    "target_size": Scenario(
        [
            _create(COLUMNS, "'write.target-file-size-bytes' = '1'"),
            f"{INSERT} UNION ALL {ROWS.replace('100', '5000')}",
        ]
    ),
    "branch": Scenario(
        [
            _CREATE,
            "ALTER TABLE {t} CREATE BRANCH audit",
            "INSERT INTO {t}.branch_audit VALUES (-1, 0, 0, 'b')",
            "UPDATE {t}.branch_audit SET x = 7 WHERE id < 3",
        ]
    ),
    "types": Scenario([_table_of(f"SELECT {', '.join(_MORE_TYPES)} FROM range(0, 50, 1, 1)")]),
    "old_days": Scenario(
        [
            _table_of(
                "SELECT date_add(DATE'1000-01-01', cast(id * 40000 AS int)) AS day,"
                " timestamp_micros(id * 40000 * 86400000000 - 30610223999999999) AS at FROM range(0, 20, 1, 1)"
            )
        ]
    ),
    "nulls_inside": Scenario(
        [
            _table_of(
                "SELECT if(id % 3 = 0, NULL, named_struct('a', if(id % 3 = 1, NULL, id), 'f', if(id = 7, NULL, id / 2))"
                ") AS s, if(id < 5, NULL, array(NULL, id)) AS l FROM range(0, 20, 1, 1)"
            )
        ]
    ),
    "null_columns": Scenario(
        [_table_of("SELECT cast(NULL AS string) AS s, cast(NULL AS double) AS f, id FROM range(0, 9, 1, 1)")]
    ),
    "required_columns": Scenario(
        [_create("id BIGINT NOT NULL, f DOUBLE NOT NULL"), "INSERT INTO {t} SELECT id, id / 4 FROM range(0, 9, 1, 1)"]
    ),
    "floats": Scenario([_create("d DOUBLE, f FLOAT"), f"INSERT INTO {{t}} VALUES {_FLOATS}"]),
    "only_nan": Scenario([_create("d DOUBLE"), "INSERT INTO {t} VALUES (double('NaN')), (NULL)"]),
    "long_texts": Scenario([_table_of(f"SELECT id, {_LONG} FROM range(0, 9, 1, 1)")]),
    "strange_names": Scenario(
        [_table_of("SELECT id AS `a b`, named_struct('ü.1', id) AS `1-2` FROM range(0, 9, 1, 1)")]
    ),
    "full_metrics": Scenario(_with("'write.metadata.metrics.default' = 'full'")),
    "few_metrics": Scenario(
        _with(
            "'write.metadata.metrics.default' = 'counts', 'write.metadata.metrics.column.s' = 'truncate(2)',"
            " 'write.metadata.metrics.column.x' = 'none'"
        )
    ),
    "gzip": Scenario(_with("'write.parquet.compression-codec' = 'gzip'")),
    "gzip_with_a_level": Scenario(
        _with("'write.parquet.compression-codec' = 'gzip', 'write.parquet.compression-level' = 'BEST_SPEED'"),
        by_writer=False,
    ),
    "zstd_with_a_level": Scenario(_with("'write.parquet.compression-level' = '9'")),
    "uncompressed": Scenario(_with("'write.parquet.compression-codec' = 'uncompressed'")),
    "row_groups": Scenario(_with("'write.parquet.row-group-size-bytes' = '1048576'")),
    "object_storage_paths": Scenario(_with("'write.object-storage.enabled' = 'true'")),
    "stream": Scenario([_create(COLUMNS), _stream]),
    "stream_upserts": Scenario([_CREATE, stream_upserts]),
    "not_null_violated": Scenario(
        [_create("id BIGINT NOT NULL"), "INSERT INTO {t} SELECT if(id = 7, NULL, id) FROM range(0, 9, 1, 1)"],
        fails=True,
    ),
    "error_of_the_query": Scenario(
        [_CREATE, "INSERT INTO {t} SELECT id, assert_true(id < 50), 0, '' FROM range(0, 99, 1, 1)"], fails=True
    ),
    "bloom_filter": Scenario(_with("'write.parquet.bloom-filter-enabled.column.id' = 'true'"), by_writer=False),
    "pages_of_version_2": Scenario(_with("'write.parquet.page-version' = 'v2'"), by_writer=False),
    "own_parquet_property": Scenario(_with("'parquet.enable.dictionary' = 'false'"), by_writer=False),
    "other_codec": Scenario(_with("'write.parquet.compression-codec' = 'lz4_raw'")),
    "orc": Scenario(_with("'write.format.default' = 'orc'"), by_writer=False),
    "variant": Scenario(
        [
            _create("id BIGINT, v VARIANT", "'format-version' = '3'"),
            "INSERT INTO {t} SELECT id, parse_json(cast(id AS string)) FROM range(0, 9, 1, 1)",
        ],
        by_writer=False,
    ),
}

EVERYDAY = frozenset(
    [
        "append_avro",
        "append_of_a_columnar_scan",
        "bloom_filter",
        "branch",
        "compaction_sorted",
        "ctas_partitioned",
        "deletion_vectors",
        "error_of_the_query",
        "evolved_columns",
        "fan_out",
        "floats",
        "hidden_partitions",
        "insert",
        "insert_overwrite_dynamic",
        "lineage",
        "merge",
        "merge_on_read_partitioned",
        "not_null_violated",
        "nulls_inside",
        "strange_names",
        "stream",
        "target_size",
        "types",
        "update",
    ]
)
"""Scenarios of `make check`, each for a different part of the integration; `make test-formats` runs all scenarios."""
