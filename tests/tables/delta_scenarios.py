# SPDX-License-Identifier: Apache-2.0
"""Writes of Delta tables, on the topics of Delta's own tests."""

from __future__ import annotations

from pyspark.sql import SparkSession

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


def _table_of(query: str, clauses: str = "") -> str:
    return f"CREATE TABLE {{t}} USING delta {clauses} LOCATION '{{d}}' AS {query}"


def _create(columns: str, properties: str = "", clauses: str = "") -> str:
    options = f" TBLPROPERTIES ({properties})" if properties else ""
    return f"CREATE TABLE {{t}} ({columns}) USING delta {clauses} LOCATION '{{d}}'{options}"


_CREATE = _table_of(ROWS)
_PARTITIONED = _table_of(ROWS, "PARTITIONED BY (k)")


def _with(properties: str) -> tuple[str, str]:
    return _create(COLUMNS, properties), INSERT


def _append(spark: SparkSession, place: Place) -> None:
    spark.sql(ROWS).write.format("delta").mode("append").save(str(place.directory))


def _overwrite_schema(spark: SparkSession, place: Place) -> None:
    frame = spark.range(0, 20, 1, 1).selectExpr("cast(id AS string) AS name", "id AS number")
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(place.directory))


def _merge_schema(spark: SparkSession, place: Place) -> None:
    frame = spark.sql(ROWS).selectExpr("*", "id / 3 AS added")
    frame.write.format("delta").mode("append").option("mergeSchema", "true").save(str(place.directory))


def _replace_where(spark: SparkSession, place: Place) -> None:
    frame = spark.sql(ROWS).where("k = 1")
    frame.write.format("delta").mode("overwrite").option("replaceWhere", "k = 1").save(str(place.directory))


def _dynamic_overwrite(spark: SparkSession, place: Place) -> None:
    frame = spark.sql(ROWS).where("k = 1").limit(5)
    options = {"partitionOverwriteMode": "dynamic"}
    frame.write.format("delta").mode("overwrite").options(**options).save(str(place.directory))


def _few_records(spark: SparkSession, place: Place) -> None:
    spark.sql(ROWS).write.format("delta").mode("append").option("maxRecordsPerFile", 20).save(str(place.directory))


def _from_batches(spark: SparkSession, place: Place) -> None:
    spark.sql(f"SELECT {', '.join(_FLAT_TYPES)} FROM range(0, 9000, 1, 1)").write.parquet(str(place.scratch / "source"))
    frame = spark.read.parquet(str(place.scratch / "source"))
    frame.write.format("delta").save(str(place.directory))
    # Write the columns in another order, and then with a filter, which needs rows instead of batches.
    frame.select("day", "id").withColumnRenamed("day", "shown").write.format("delta").mode("overwrite").option(
        "overwriteSchema", "true"
    ).save(str(place.directory))
    frame.select("day", "id").where("id % 3 = 0").withColumnRenamed("day", "shown").write.format("delta").mode(
        "append"
    ).save(str(place.directory))


def _append_batches(spark: SparkSession, place: Place) -> None:
    spark.sql(ROWS).write.parquet(str(place.scratch / "source"))
    frame = spark.read.parquet(str(place.scratch / "source"))
    frame.write.format("delta").mode("append").save(str(place.directory))


def _zstd(spark: SparkSession, place: Place) -> None:
    spark.sql(ROWS).write.format("delta").mode("append").option("compression", "zstd").save(str(place.directory))


def _optimize_api(spark: SparkSession, place: Place) -> None:
    table = spark._jvm.io.delta.tables.DeltaTable.forPath(spark._jsparkSession, str(place.directory))
    table.optimize().executeCompaction()


def _merge_with_evolution(spark: SparkSession, place: Place) -> None:
    spark.sql(
        place.fill(
            "MERGE WITH SCHEMA EVOLUTION INTO {t} t USING (SELECT id, id AS y FROM range(95, 105, 1, 1)) s"
            " ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
    )


def _stream(spark: SparkSession, place: Place) -> None:
    writer = source(spark, place).writeStream.format("delta").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(place.scratch / "checkpoint")).start(str(place.directory))
    query.awaitTermination(250)


_FLAT_TYPES = ("id", *(type_ for type_ in TYPES if not type_.endswith(("AS byte", "AS list", "AS map"))))
_FLOATS = "(double('NaN')), (1.5D), (double('-Infinity')), (NULL), (-0.0D), (0.0D)"
_LONG = "repeat(chr(cast(97 + id AS int)), 50) AS a, repeat('\U0001f600', 40) AS b, repeat('z', 3000) AS c"
_DAYS_AND_TEXTS = (
    "SELECT id, date_add(DATE'2026-01-01', cast(id % 3 AS int)) AS day,"
    " if(id % 4 = 0, NULL, concat('a/b=', id % 2)) AS s FROM range(0, 40, 1, 1)"
)

SCENARIOS: dict[str, Scenario] = {
    "ctas": Scenario([_CREATE]),
    "ctas_partitioned": Scenario([_PARTITIONED]),
    "rtas": Scenario(
        [_CREATE, "CREATE OR REPLACE TABLE {t} USING delta LOCATION '{d}' AS SELECT id AS y FROM range(0, 9, 1, 1)"]
    ),
    "insert": Scenario([_CREATE, INSERT]),
    "insert_values": Scenario([_CREATE, "INSERT INTO {t} VALUES (1, 2, 3, NULL), (NULL, NULL, NULL, 'last')"]),
    "insert_overwrite": Scenario([_CREATE, f"INSERT OVERWRITE {{t}} {ROWS} LIMIT 3"]),
    "insert_replace_where": Scenario(
        [_CREATE, f"INSERT INTO {{t}} REPLACE WHERE k = 1 SELECT * FROM ({ROWS}) WHERE k = 1"]
    ),
    "insert_no_rows": Scenario([_CREATE, f"INSERT INTO {{t}} SELECT * FROM ({ROWS}) WHERE id < 0"]),
    "append": Scenario([_CREATE, _append]),
    "overwrite_schema": Scenario([_CREATE, _overwrite_schema]),
    "merge_schema": Scenario([_CREATE, _merge_schema]),
    "replace_where": Scenario([_PARTITIONED, _replace_where]),
    "dynamic_overwrite": Scenario([_PARTITIONED, _dynamic_overwrite]),
    "few_records_per_file": Scenario([_CREATE, _few_records]),
    "zstd": Scenario([_CREATE, _zstd]),
    "update": Scenario([_CREATE, UPDATE]),
    "delete": Scenario([_CREATE, DELETE]),
    "delete_partitions": Scenario([_PARTITIONED, "DELETE FROM {t} WHERE k = 1", DELETE]),
    "merge": Scenario([_CREATE, MERGE]),
    "merge_partitioned": Scenario([_PARTITIONED, MERGE]),
    "merge_with_schema_evolution": Scenario([_CREATE, _merge_with_evolution]),
    "deletion_vectors": Scenario([*_with("delta.enableDeletionVectors = true"), DELETE, UPDATE, MERGE]),
    "change_data": Scenario([*_with("delta.enableChangeDataFeed = true"), UPDATE, DELETE, MERGE]),
    "row_tracking": Scenario([*_with("delta.enableRowTracking = true"), UPDATE, MERGE]),
    "column_mapping_by_name": Scenario(
        [
            *_with("delta.columnMapping.mode = 'name'"),
            "ALTER TABLE {t} RENAME COLUMN x TO `a, b`",
            "UPDATE {t} SET `a, b` = 1",
        ]
    ),
    "column_mapping_by_id": Scenario([*_with("delta.columnMapping.mode = 'id'"), UPDATE]),
    "in_commit_timestamps": Scenario([*_with("delta.enableInCommitTimestamps = true"), UPDATE]),
    "optimize": Scenario([_CREATE, INSERT, INSERT, "OPTIMIZE {t}"]),
    "optimize_partition": Scenario([_PARTITIONED, INSERT, INSERT, "OPTIMIZE {t} WHERE k = 1"]),
    "optimize_api": Scenario([_CREATE, INSERT, _optimize_api]),
    "optimize_zorder": Scenario([_CREATE, INSERT, "OPTIMIZE {t} ZORDER BY (x, s)"]),
    "liquid_clustering": Scenario([_create(COLUMNS, clauses="CLUSTER BY (x)"), INSERT, INSERT, "OPTIMIZE {t}"]),
    "auto_compaction": Scenario(
        [*_with("delta.autoOptimize.autoCompact = true"), INSERT],
        {"spark.databricks.delta.autoCompact.minNumFiles": "2"},
    ),
    "optimized_writes": Scenario([*_with("delta.autoOptimize.optimizeWrite = true")]),
    "generated_column": Scenario(
        [
            _create("id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2)"),
            "INSERT INTO {t} (id) SELECT id FROM range(0, 50, 1, 1)",
        ]
    ),
    "identity_column": Scenario(
        [
            _create("number BIGINT GENERATED ALWAYS AS IDENTITY, id BIGINT"),
            "INSERT INTO {t} (id) SELECT id FROM range(0, 50, 1, 1)",
            "INSERT INTO {t} (id) SELECT id FROM range(0, 50, 1, 1)",
        ],
        since=(4, 0),
    ),
    "default_column": Scenario(
        [
            _create("id BIGINT, word STRING DEFAULT 'none'", "delta.feature.allowColumnDefaults = 'supported'"),
            "INSERT INTO {t} (id) SELECT id FROM range(0, 50, 1, 1)",
        ]
    ),
    "constraint": Scenario([_CREATE, "ALTER TABLE {t} ADD CONSTRAINT small CHECK (id < 1000)", INSERT]),
    "constraint_violated": Scenario(
        [
            _CREATE,
            "ALTER TABLE {t} ADD CONSTRAINT small CHECK (id < 1000)",
            "INSERT INTO {t} SELECT id + 950, 0, 0, '' FROM range(0, 99, 1, 1)",
        ],
        fails=True,
    ),
    "not_null_violated": Scenario(
        [_create("id BIGINT NOT NULL"), "INSERT INTO {t} SELECT if(id = 7, NULL, id) FROM range(0, 9, 1, 1)"],
        fails=True,
    ),
    "error_of_the_query": Scenario(
        [_CREATE, "INSERT INTO {t} SELECT id, assert_true(id < 50), 0, '' FROM range(0, 99, 1, 1)"], fails=True
    ),
    "type_widening": Scenario(
        [
            _create("id INT", "delta.enableTypeWidening = true"),
            "INSERT INTO {t} SELECT cast(id AS int) FROM range(0, 9, 1, 1)",
            "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
            "INSERT INTO {t} SELECT id + 5000000000 FROM range(0, 9, 1, 1)",
        ]
    ),
    "types": Scenario([_table_of(f"SELECT {', '.join(TYPES)} FROM range(0, 50, 1, 1)")]),
    "old_days": Scenario(
        [
            _table_of(
                "SELECT date_add(DATE'1000-01-01', cast(id * 40000 AS int)) AS day,"
                " timestamp_micros(id * 40000 * 86400000000 - 30610223999999999) AS at,"
                " cast(timestamp_micros(id * 40000 * 86400000000 - 30610223999999999) AS timestamp_ntz) AS shown,"
                " array(date_add(DATE'1582-10-04', cast(id AS int))) AS days FROM range(0, 20, 1, 1)"
            )
        ]
    ),
    "days_of_the_hybrid_calendar": Scenario(
        [
            _table_of(
                "SELECT id, date_add(DATE'1500-01-01', cast(id * 9000 AS int)) AS day,"
                " timestamp_micros(id * 777600000000001 - 14831769600000000) AS at FROM range(0, 20, 1, 1)"
            )
        ],
        {
            "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        },
        by_writer=False,
    ),
    "timestamps_of_microseconds": Scenario(
        [_table_of("SELECT timestamp_micros(id * 86400000123 - 1) AS at FROM range(0, 20, 1, 1)")],
        {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"},
    ),
    "optimized_write_of_batches": Scenario([*_with("delta.autoOptimize.optimizeWrite = true"), _append_batches]),
    "dots_in_names": Scenario(
        [
            _create("id BIGINT", "delta.columnMapping.mode = 'name'"),
            "ALTER TABLE {t} ADD COLUMNS (s STRUCT<`b.c`: BIGINT, b: STRUCT<c: BIGINT>>)",
            "INSERT INTO {t} SELECT id, named_struct('b.c', id, 'b', named_struct('c', -id)) FROM range(1, 9, 1, 1)",
        ]
    ),
    "from_batches": Scenario([_from_batches, "CREATE TABLE {t} USING delta LOCATION '{d}'"]),
    "nulls_inside": Scenario(
        [
            _table_of(
                "SELECT if(id % 3 = 0, NULL, named_struct('a', if(id % 3 = 1, NULL, id), 'b', named_struct('c', -id)))"
                " AS s, if(id < 5, NULL, array(NULL, id)) AS l FROM range(0, 20, 1, 1)"
            )
        ]
    ),
    "null_columns": Scenario(
        [_table_of("SELECT cast(NULL AS string) AS s, cast(NULL AS int) AS n, id FROM range(0, 9, 1, 1)")]
    ),
    "floats": Scenario([_create("f DOUBLE"), f"INSERT INTO {{t}} VALUES {_FLOATS}"]),
    "long_texts": Scenario([_table_of(f"SELECT id, {_LONG} FROM range(0, 9, 1, 1)")]),
    "indexed_columns": Scenario(_with("delta.dataSkippingNumIndexedCols = 2")),
    "no_statistics": Scenario(_with("delta.dataSkippingNumIndexedCols = 0")),
    "columns_with_statistics": Scenario(_with("delta.dataSkippingStatsColumns = 'k,s'")),
    "partitions_by_date_and_text": Scenario([_table_of(_DAYS_AND_TEXTS, "PARTITIONED BY (day, s)")]),
    "stream": Scenario([_CREATE, _stream]),
    "stream_upserts": Scenario([_CREATE, stream_upserts]),
    "restore": Scenario([_CREATE, INSERT, "RESTORE TABLE {t} TO VERSION AS OF 0", UPDATE]),
    "checkpoints": Scenario([*_with("delta.checkpointInterval = 2"), INSERT, UPDATE, INSERT]),
    "iceberg_compatible": Scenario(
        _with("delta.enableIcebergCompatV2 = true, delta.columnMapping.mode = 'name'"), by_writer=False
    ),
    "variant": Scenario(
        [_table_of("SELECT id, parse_json(cast(id AS string)) AS v FROM range(0, 9, 1, 1)")], by_writer=False
    ),
}

EVERYDAY = frozenset(
    [
        "append",
        "change_data",
        "column_mapping_by_name",
        "columns_with_statistics",
        "constraint_violated",
        "ctas_partitioned",
        "deletion_vectors",
        "dynamic_overwrite",
        "error_of_the_query",
        "few_records_per_file",
        "floats",
        "from_batches",
        "iceberg_compatible",
        "identity_column",
        "insert",
        "insert_overwrite",
        "liquid_clustering",
        "long_texts",
        "merge",
        "nulls_inside",
        "optimize",
        "optimized_write_of_batches",
        "stream",
        "types",
        "update",
    ]
)
"""Scenarios of `make check`, each for a different part of the integration; `make test-formats` runs all scenarios."""
