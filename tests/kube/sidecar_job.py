# SPDX-License-Identifier: Apache-2.0
"""Job whose executors have pools next to them, in its own process, because a process has only one Spark.

It takes its confs as JSON, and prints as JSON what the functions returned and where they ran.
"""

from __future__ import annotations

import json
import os
import sys

import pandas as pd
from pyspark.sql import functions as F

from tests.support.spark import local_spark

_ROWS = 1_000


def main() -> None:
    spark = local_spark("sidecar", connector=True, conf=json.loads(sys.argv[1]))

    @F.pandas_udf("string")
    def place(values: pd.Series) -> pd.Series:
        from pathlib import Path

        token = Path("/var/run/secrets/kubernetes.io/serviceaccount/token").exists()
        socket = Path("/run/updraft-pool/pool.sock").exists()
        host = Path("/etc/hostname").read_text().strip()
        return pd.Series([json.dumps([host, os.getuid(), token, socket])] * len(values))

    @F.udf("long")
    def crashes(value: int) -> int:
        if value == 7:
            os.abort()
        return value

    rows = spark.range(0, _ROWS, 1, 4)
    frame = rows.select(place("id").alias("place"))
    places = [json.loads(row.place) for row in frame.distinct().collect()]
    try:
        rows.select(crashes("id")).collect()
        crash = ""
    except Exception as error:
        crash = str(error)
    tripled = F.pandas_udf(lambda values: values * 3, "long")
    ((total,),) = rows.select(tripled("id").alias("t")).agg(F.sum("t")).collect()
    plan = frame._jdf.queryExecution().toString()
    print(json.dumps({"places": places, "crash": crash, "total": total, "plan": plan}))
    spark.stop()


if __name__ == "__main__":
    main()
