# SPDX-License-Identifier: Apache-2.0
"""Spark with Delta and Iceberg that runs SQL on request, with lines of JSON as requests and answers."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tests.programs.bench.formats_variants import VARIANTS
from tests.support.paths import connector_jar
from tests.support.spark import local_spark

_EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


def main() -> None:
    """Serve requests. Arguments: variant, directory of jars, directory of tables, endpoint of the writer."""
    name, jars, directory, endpoint = sys.argv[1:]
    variant = VARIANTS[name]
    paths = [path for path in sorted(Path(jars).glob("*.jar")) if name == "comet" or not path.match("comet-*")]
    if name == "updraft":
        paths.append(connector_jar())
    confs = {
        "spark.log.level": "FATAL",
        "spark.driver.memory": "2g",
        "spark.driver.extraClassPath": ":".join(map(str, paths)),
        "spark.sql.extensions": ",".join([*variant.extensions, *_EXTENSIONS]),
        "spark.sql.warehouse.dir": f"{directory}/delta",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.iceberg": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.iceberg.type": "hadoop",
        "spark.sql.catalog.iceberg.warehouse": f"{directory}/iceberg",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.updraft.write.endpoint": endpoint,
        **variant.confs,
    }
    spark = local_spark(f"bench-formats-{name}", connector=False, conf=confs)
    _answer({"ready": spark.version})
    for line in sys.stdin:
        started = time.perf_counter()
        rows = spark.sql(json.loads(line)["sql"]).collect()
        _answer({"wall_s": time.perf_counter() - started, "rows": [[str(value) for value in row] for row in rows]})
    spark.stop()


def _answer(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
