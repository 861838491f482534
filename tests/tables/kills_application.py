# SPDX-License-Identifier: Apache-2.0
"""Application that writes a table step by step until it is killed, with separate executor processes.

The application prints the number of committed steps after each commit. A failed step has not committed, so the
application tries the step again.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tests.support.paths import connector_jar
from tests.support.spark import EXTENSION, SHORT_LIVED_JVM, local_spark
from tests.tables.kept_table import TEXT, catalog_confs

BATCH_ROWS = 40_000
_PARTITIONS = 2
_EXTENSIONS = (
    EXTENSION,
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


def statement(table: str, step: int) -> str:
    """Return the SQL of a step: three steps append a batch each, the fourth deletes half of the last batch."""
    if step % 4 == 3:
        return f"DELETE FROM {table} WHERE batch = {step - 1} AND id % 2 = 0"
    rows = f"SELECT cast({step} AS bigint) AS batch, id, {TEXT} AS text FROM range(0, {BATCH_ROWS}, 1, {_PARTITIONS})"
    return f"INSERT INTO {table} {rows}"


def batches_after(steps: int) -> dict[int, int]:
    """Return the number of rows of each batch after this many steps."""
    halved = {step - 1 for step in range(steps) if step % 4 == 3}
    return {step: BATCH_ROWS // (2 if step in halved else 1) for step in range(steps) if step % 4 != 3}


def main() -> None:
    """Run steps forever."""
    table_format, table, endpoint, jars, catalog, warehouse = sys.argv[1:]
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    class_path = ":".join(map(str, [connector_jar(), *sorted(Path(jars).resolve(strict=True).glob("*.jar"))]))
    spark = local_spark(
        "to be killed",
        connector=False,
        conf={
            "spark.master": "local-cluster[2,1,512]",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
            "spark.driver.extraClassPath": class_path,
            "spark.executor.extraClassPath": class_path,
            "spark.sql.extensions": ",".join(_EXTENSIONS),
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            **catalog_confs(catalog, warehouse),
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.updraft.write.tables": table_format,
            "spark.updraft.write.smallWriteBytes": "0",
            "spark.updraft.write.endpoint": endpoint,
            "spark.updraft.write.batchBytes": "256k",
        },
    )
    step = 0
    while True:
        try:
            spark.sql(statement(table, step))
        except Exception as error:
            print(f"step {step} failed: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
            # Wait, because a killed writer needs a moment to restart.
            time.sleep(0.5)
        else:
            step += 1
            print(step, flush=True)


if __name__ == "__main__":
    main()
