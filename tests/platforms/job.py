# SPDX-License-Identifier: Apache-2.0
"""Job as users submit it: `job.py TABLE [SECRET]` calls a function, writes a table and reads it again.

It prints one line of JSON. SECRET is a file that the function tries to read. A module of the job's own,
factors.py beside its settings, travels with the function.
"""

import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

ROWS = 10_000


def main(table: str, secret: str) -> None:
    """Run the job with the confs of the environment."""
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.addPyFile("factors.py")

    @F.udf("struct<doubled: bigint, user: int, secret: string>")
    def doubled(value):  # type: ignore[no-untyped-def]
        from factors import TWO  # type: ignore[import-not-found]

        try:
            with open(secret) as file:  # noqa: PTH123 - as users write it
                read = file.read()
        except OSError as error:
            read = type(error).__name__
        return TWO * value, os.getuid(), read

    frame = spark.range(ROWS).repartition(4).select(doubled("id").alias("made")).select("made.*")
    frame.write.format("updraft-parquet").mode("overwrite").save(table)
    plan = frame._jdf.queryExecution().executedPlan().toString()
    written = spark.read.parquet(table)
    total, count = written.agg(F.sum("doubled"), F.count("*")).first()
    users, secrets = (
        sorted({row[0] for row in written.select(name).distinct().collect()}) for name in ("user", "secret")
    )
    hosts = spark._jsc.sc().getExecutorMemoryStatus().size()
    said = {"on_pool": "FlightEvalPython" in plan, "sum": total, "rows": count, "users": users, "secrets": secrets}
    print("job:", json.dumps(said | {"executors": hosts - 1}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
