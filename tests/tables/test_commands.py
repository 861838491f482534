# SPDX-License-Identifier: Apache-2.0
"""Commands on tables of Delta, Iceberg and Hive with a Python function inside work as on stock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.commands import Command, Place, assert_same_outcome
from tests.support.kinds_of_spark import needs_spark
from tests.support.pool import LocalPool

_NUMBERS = "SELECT id, id * 10 AS x, id % 2 AS k FROM range(5)"
_DELTA = (f"CREATE TABLE {{t}} USING delta AS {_NUMBERS}",)
_ICEBERG = (f"CREATE TABLE {{t}} USING iceberg AS {_NUMBERS}",)
_HIVE = (f"CREATE TABLE {{t}} STORED AS PARQUET AS {_NUMBERS}",)

_UPDATE = "UPDATE {t} SET x = f(x) WHERE big(id)"
_DELETE = "DELETE FROM {t} WHERE big(id)"
_MERGE = (
    "MERGE INTO {t} t USING (SELECT f(id) AS id FROM range(5)) s ON t.id = s.id"
    " WHEN MATCHED AND big(t.id) THEN UPDATE SET x = f(t.x) WHEN MATCHED THEN DELETE"
    " WHEN NOT MATCHED AND big(s.id) THEN INSERT (id, x, k) VALUES (s.id, f(s.id), 0)"
)
_MERGE_BY_SOURCE = (
    "MERGE INTO {t} t USING (SELECT f(id) AS id FROM range(2)) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET x = f(t.x)"
    " WHEN NOT MATCHED BY SOURCE AND big(t.id) THEN UPDATE SET x = f(t.k) WHEN NOT MATCHED BY SOURCE THEN DELETE"
)
_INSERT = f"INSERT INTO {{t}} SELECT f(id), x, k FROM ({_NUMBERS})"
_OVERWRITE = f"INSERT OVERWRITE {{t}} SELECT f(id), x, k FROM ({_NUMBERS})"
_REPLACE_WHERE = f"INSERT INTO {{t}} REPLACE WHERE k = 1 SELECT f(id), x, k FROM ({_NUMBERS}) WHERE k = 1"

# Delta 3.3 on stock Spark 3.5.8 reports that the table "does not support truncate in batch mode".
_REPLACES = (4, 0)


def _delta_table(spark: SparkSession, place: Place) -> Any:
    return spark._jvm.io.delta.tables.DeltaTable.forName(spark._jsparkSession, place.table)


def _columns(spark: SparkSession, **assignments: str) -> Any:
    columns = spark._jvm.java.util.HashMap()
    for name, value in assignments.items():
        columns[name] = F.expr(value)._jc
    return columns


def _frame(spark: SparkSession, answer: Any) -> DataFrame | None:
    return None if answer is None else DataFrame(answer, spark)


def _update(spark: SparkSession, place: Place) -> object:
    return _frame(spark, _delta_table(spark, place).update(F.expr("id = 3")._jc, _columns(spark, x="f(x)")))


def _delete(spark: SparkSession, place: Place) -> object:
    return _frame(spark, _delta_table(spark, place).delete(F.expr("big(id)")._jc))


def _merge(spark: SparkSession, place: Place) -> object:
    source = spark.range(5).selectExpr("f(id) AS id").alias("s")
    merge = _delta_table(spark, place).alias("t").merge(source._jdf, F.expr("t.id = s.id")._jc)
    merge = merge.whenMatched(F.expr("big(t.id)")._jc).update(_columns(spark, x="f(t.x)"))
    merge = merge.whenNotMatched().insert(_columns(spark, id="s.id", x="f(s.id)", k="0L"))
    return _frame(spark, merge.execute())


def _merge_with_schema(spark: SparkSession, place: Place) -> object:
    source = spark.range(5).selectExpr("f(id) AS id", "f(id) AS y").alias("s")
    merge = _delta_table(spark, place).alias("t").merge(source._jdf, F.expr("t.id = s.id")._jc)
    merge = merge.withSchemaEvolution().whenMatched().updateAll().whenNotMatched().insertAll()
    return _frame(spark, merge.execute())


def _save(format_of: str, mode: str) -> Any:
    def save(spark: SparkSession, place: Place) -> object:
        frame = spark.sql(_NUMBERS).selectExpr("f(id) AS id", "x", "k")
        return frame.write.format(format_of).mode(mode).saveAsTable(place.table)

    return save


def _overwrite_partitions(spark: SparkSession, place: Place) -> object:
    return (
        spark.sql(_NUMBERS)
        .where("k = 1")
        .selectExpr("f(id) AS id", "x", "k")
        .writeTo(place.table)
        .overwritePartitions()
    )


def _overwrite_by_expression(spark: SparkSession, place: Place) -> object:
    rows = spark.sql(_NUMBERS).where("id > 2").selectExpr("id", "f(x) AS x", "k")
    return rows.writeTo(place.table).overwrite(F.expr("big(id)"))


def _replace_where(spark: SparkSession, place: Place) -> object:
    frame = spark.sql(_NUMBERS).where("id > 2").selectExpr("id", "f(x) AS x", "k")
    return frame.write.format("delta").mode("overwrite").option("replaceWhere", "id > 2").saveAsTable(place.table)


def _stream_to(format_of: str) -> Any:
    def stream(spark: SparkSession, place: Place) -> object:
        spark.sql(_NUMBERS).write.parquet(str(place.directory / "source"))
        rows = spark.readStream.schema("id bigint, x bigint, k bigint").parquet(str(place.directory / "source"))
        writer = rows.selectExpr("f(id) AS id", "x", "k").writeStream.format(format_of).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(place.directory / "checkpoint")).toTable(place.table)
        return query.awaitTermination(250)

    return stream


def _upsert_of_a_stream(spark: SparkSession, place: Place) -> object:
    spark.sql(_NUMBERS).write.parquet(str(place.directory / "source"))
    rows = spark.readStream.schema("id bigint, x bigint, k bigint").parquet(str(place.directory / "source"))

    def upsert(batch: Any, _: int) -> None:
        batch.createOrReplaceTempView("batch_of_numbers")
        batch.sparkSession.sql(
            place.fill(
                "MERGE INTO {t} t USING batch_of_numbers s ON t.id = s.id"
                " WHEN MATCHED AND big(t.id) THEN UPDATE SET x = f(s.x) WHEN NOT MATCHED THEN INSERT *"
            )
        )

    writer = rows.writeStream.foreachBatch(upsert).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(place.directory / "checkpoint")).start().awaitTermination(250)


COMMANDS: dict[str, Command] = {
    "delta_update": Command(_UPDATE, _DELTA),
    "delta_update_where_nothing_matches": Command("UPDATE {t} SET x = f(x) WHERE big(-id)", _DELTA),
    "delta_update_api": Command(_update, _DELTA),
    "delta_update_error": Command("UPDATE {t} SET x = f(assert_true(id < 3))", _DELTA, calls=False),
    "delta_delete": Command(_DELETE, _DELTA),
    "delta_delete_api": Command(_delete, _DELTA),
    "delta_merge": Command(_MERGE, _DELTA),
    "delta_merge_api": Command(_merge, _DELTA),
    "delta_merge_with_schema_evolution": Command(_merge_with_schema, _DELTA),
    "delta_merge_by_source": Command(_MERGE_BY_SOURCE, _DELTA),
    "delta_overwrite_by_expression": Command(_overwrite_by_expression, _DELTA, calls=False),
    "delta_deletion_vectors": Command(
        _DELETE, (*_DELTA, "ALTER TABLE {t} SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    ),
    "delta_insert": Command(_INSERT, _DELTA),
    "delta_insert_values": Command("INSERT INTO {t} VALUES (f(4L), 1L, 1L)", _DELTA, calls=False),
    "delta_overwrite": Command(_OVERWRITE, _DELTA),
    "delta_insert_replace_where": Command(_REPLACE_WHERE, _DELTA),
    "delta_write_replace_where": Command(_replace_where, _DELTA, since=_REPLACES),
    "delta_ctas": Command(f"CREATE TABLE {{t}} USING delta AS SELECT f(id) AS id FROM ({_NUMBERS})"),
    "delta_ctas_partitioned": Command(
        f"CREATE TABLE {{t}} USING delta PARTITIONED BY (k) AS SELECT f(id) AS id, f(k) AS k FROM ({_NUMBERS})"
    ),
    "delta_rtas": Command(
        f"CREATE OR REPLACE TABLE {{t}} USING delta AS SELECT f(x) AS y FROM ({_NUMBERS})", _DELTA, since=_REPLACES
    ),
    "delta_save_as_table": Command(_save("delta", "overwrite"), _DELTA, since=_REPLACES),
    "delta_append": Command(_save("delta", "append"), _DELTA),
    "delta_optimize": Command("OPTIMIZE {t} WHERE big(k)", _DELTA, left="SELECT count(*) FROM {t}", calls=False),
    "delta_generated_column": Command(
        "CREATE TABLE {t} (id BIGINT, y BIGINT GENERATED ALWAYS AS (f(id))) USING delta", calls=False, since=(4, 0)
    ),
    "delta_constraint": Command("ALTER TABLE {t} ADD CONSTRAINT small CHECK (NOT big(id - 9))", _DELTA, calls=False),
    "delta_rows_for_a_generated_column": Command(
        "INSERT INTO {t} (id) SELECT f(id) FROM range(3)",
        ("CREATE TABLE {t} (id BIGINT, y BIGINT GENERATED ALWAYS AS (id + 1)) USING delta",),
        since=(4, 0),
    ),
    "delta_rows_against_a_constraint": Command(
        "INSERT INTO {t} SELECT f(id) FROM range(3)",
        ("CREATE TABLE {t} (id BIGINT) USING delta", "ALTER TABLE {t} ADD CONSTRAINT small CHECK (id < 3)"),
        calls=False,
    ),
    "delta_stream": Command(_stream_to("delta"), _DELTA),
    "delta_stream_upserts": Command(_upsert_of_a_stream, _DELTA),
    "delta_explain": Command("EXPLAIN " + _UPDATE, _DELTA, calls=False),
    "iceberg_update": Command(_UPDATE, _ICEBERG),
    "iceberg_delete": Command(_DELETE, _ICEBERG),
    "iceberg_merge": Command(_MERGE, _ICEBERG),
    "iceberg_update_of_rows": Command(
        _UPDATE, (*_ICEBERG, "ALTER TABLE {t} SET TBLPROPERTIES ('write.update.mode' = 'merge-on-read')")
    ),
    "iceberg_delete_of_rows": Command(
        _DELETE, (*_ICEBERG, "ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    ),
    "iceberg_merge_of_rows": Command(
        _MERGE, (*_ICEBERG, "ALTER TABLE {t} SET TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')")
    ),
    "iceberg_merge_by_source": Command(_MERGE_BY_SOURCE, _ICEBERG),
    "iceberg_merge_by_source_of_rows": Command(
        _MERGE_BY_SOURCE, (*_ICEBERG, "ALTER TABLE {t} SET TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')")
    ),
    "iceberg_overwrite_by_expression": Command(_overwrite_by_expression, _ICEBERG, calls=False),
    "iceberg_view": Command(f"CREATE VIEW {{t}} AS SELECT f(id) AS id FROM ({_NUMBERS})", calls=False),
    "iceberg_insert": Command(_INSERT, _ICEBERG),
    "iceberg_overwrite": Command(_OVERWRITE, _ICEBERG),
    "iceberg_overwrite_partitions": Command(
        _overwrite_partitions, (f"CREATE TABLE {{t}} USING iceberg PARTITIONED BY (k) AS {_NUMBERS}",)
    ),
    "iceberg_ctas": Command(f"CREATE TABLE {{t}} USING iceberg AS SELECT f(id) AS id FROM ({_NUMBERS})"),
    "iceberg_rtas": Command(
        f"CREATE OR REPLACE TABLE {{t}} USING iceberg AS SELECT f(x) AS y FROM ({_NUMBERS})", _ICEBERG
    ),
    "iceberg_save_as_table": Command(_save("iceberg", "overwrite"), _ICEBERG),
    "iceberg_call": Command(
        "CALL iceberg.system.rewrite_data_files(table => '{t}', where => 'big(id)')", _ICEBERG, calls=False
    ),
    "iceberg_call_of_a_value": Command(
        "CALL iceberg.system.expire_snapshots(table => '{t}', retain_last => CAST(f(1L) AS INT))", _ICEBERG, calls=False
    ),
    "iceberg_stream": Command(_stream_to("iceberg"), _ICEBERG),
    "hive_ctas": Command(f"CREATE TABLE {{t}} STORED AS PARQUET AS SELECT f(id) AS id FROM ({_NUMBERS})"),
    "hive_ctas_text": Command(f"CREATE TABLE {{t}} STORED AS TEXTFILE AS SELECT f(id) AS id FROM ({_NUMBERS})"),
    "hive_insert": Command(_INSERT, _HIVE),
    "hive_overwrite_dynamic_partitions": Command(
        f"INSERT OVERWRITE TABLE {{t}} PARTITION (k) SELECT f(id) AS id, f(k) AS k FROM ({_NUMBERS})",
        ("CREATE TABLE {t} (id BIGINT) PARTITIONED BY (k BIGINT) STORED AS ORC",),
    ),
    "hive_insert_text": Command(
        "INSERT INTO {t} SELECT f(id) FROM range(4)", ("CREATE TABLE {t} (id BIGINT) STORED AS TEXTFILE",)
    ),
    "hive_overwrite_directory": Command(
        "INSERT OVERWRITE LOCAL DIRECTORY '{d}/out' STORED AS PARQUET SELECT f(id) AS id FROM range(4)",
        left="SELECT * FROM parquet.`{d}/out`",
    ),
    "hive_view": Command(f"CREATE VIEW {{t}} AS SELECT f(id) AS id FROM ({_NUMBERS})", calls=False),
    "hive_delete": Command(_DELETE, _HIVE, calls=False),
    "hive_update": Command(_UPDATE, _HIVE, calls=False),
    "hive_merge": Command(_MERGE, _HIVE, calls=False),
}


# Delta plans each of these commands like another command in COMMANDS: like the SQL statement, like INSERT, or like the
# same write to a partitioned table.
_LIKE_OTHERS = frozenset(
    {
        "delta_update_api",
        "delta_delete_api",
        "delta_merge_api",
        "delta_update_where_nothing_matches",
        "delta_write_replace_where",
        "delta_save_as_table",
        "delta_ctas",
        "delta_append",
        "delta_overwrite",
        "delta_insert_replace_where",
        "delta_rtas",
    }
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.campaign] if name in _LIKE_OTHERS else []) for name in COMMANDS]
)
def test_a_command_does_what_it_does_on_stock(spark: SparkSession, pool: LocalPool, tmp_path: Path, name: str) -> None:
    needs_spark(COMMANDS[name].since, f"{name} on stock")
    catalog = "iceberg.commands." if name.startswith("iceberg") else ""
    assert_same_outcome(spark, pool, COMMANDS[name], tmp_path, catalog + name)
