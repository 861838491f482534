# SPDX-License-Identifier: Apache-2.0
"""Archive of Spark's classes, which the JVMs of tests map into memory instead of loading and checking each class.

With the archive, a test's JVM takes half of the processor time. `python -m tests.support.shared_classes` makes the
archive for the PySpark of this environment. Without an archive, or with another Java, JVMs load the classes one by one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pandas as pd
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from tests.support.spark import CLASSES_OF_SPARK, SHORT_LIVED_JVM, local_spark

_CONNECT = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.port": "0",
}
_TABLE = f"classes_{os.getpid()}"


def main() -> None:
    """Run one query of each family, so that their classes are loaded, and let the JVM write its archive at its end."""
    CLASSES_OF_SPARK.parent.mkdir(parents=True, exist_ok=True)
    # A JVM that meanwhile reads the archive keeps the previous file.
    written = CLASSES_OF_SPARK.with_suffix(f".{os.getpid()}")
    options = [option for option in SHORT_LIVED_JVM.split() if str(CLASSES_OF_SPARK) not in option]
    # Warnings name each class that cannot be archived, such as those of signed jars.
    quiet = ["-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*options, *quiet, f"-XX:ArchiveClassesAtExit={written}"])
    spark = local_spark("classes", connector=False, conf={"spark.log.level": "ERROR", **_CONNECT})
    with tempfile.TemporaryDirectory() as directory:
        _use(spark, Path(directory))
    jvm = SparkContext._gateway.proc
    spark.stop()
    # The JVM ends with its standard input.
    jvm.stdin.close()
    jvm.wait()
    if written.exists():
        written.replace(CLASSES_OF_SPARK)
    else:
        sys.stderr.write("this Java has written no archive of classes, so JVMs start more slowly\n")


def _use(spark: SparkSession, directory: Path) -> None:
    doubled = F.pandas_udf(_doubled, "double")
    mean = F.pandas_udf(_mean, "double")
    plain = F.udf(str, "string", useArrow=False)
    numbers = spark.range(0, 1000, 1, 2).select(
        "id", (F.col("id") % 7).alias("k"), F.col("id").cast("string").alias("s")
    )
    for kind in ("parquet", "orc", "csv", "json"):
        numbers.write.format(kind).partitionBy("k").save(str(directory / kind))
    read = spark.read.parquet(str(directory / "parquet"))
    read.createOrReplaceTempView("numbers")
    read.where("id > 10").select(doubled("id"), plain("s")).collect()
    read.groupBy("k").agg(mean("id")).orderBy("k").collect()
    read.groupBy("k").applyInPandas(_first, "id bigint, k int, s string").collect()
    read.groupBy("k").agg(F.sum("id"), F.max("s")).orderBy("k").collect()
    read.select(mean("id").over(Window.partitionBy("k"))).collect()
    read.mapInPandas(lambda frames: frames, "id bigint, s string, k int").limit(3).toPandas()
    spark.sql("SELECT n.k, count(*), collect_list(m.s) FROM numbers n JOIN numbers m USING (id) GROUP BY ALL").collect()
    spark.sql("SELECT explode(array(id, k)), map(s, id), struct(k) FROM numbers ORDER BY 1 LIMIT 5").collect()
    spark.createDataFrame(pd.DataFrame({"x": [1.5], "y": ["a"]})).collect()
    spark.sql(f"CREATE TABLE {_TABLE} USING parquet LOCATION '{directory}/table' AS SELECT * FROM numbers")
    spark.sql(f"INSERT INTO {_TABLE} SELECT * FROM numbers").collect()
    spark.sql(f"DROP TABLE {_TABLE}")


def _doubled(numbers: pd.Series) -> pd.Series:
    return numbers * 2.0


def _mean(numbers: pd.Series) -> float:
    return float(numbers.mean())


def _first(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.head(1)


if __name__ == "__main__":
    main()
