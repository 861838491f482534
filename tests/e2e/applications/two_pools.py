# SPDX-License-Identifier: Apache-2.0
"""Functions of two pools, `deployed_functions` and `deployed_elsewhere`, called over Spark Connect."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql.connect import functions as F
from pyspark.sql.connect.session import SparkSession as Client

from tests.e2e.applications.connect import CONNECT, listening_port
from tests.support.spark import ENDPOINT, local_spark
from updraft.spark import functions as U

_CATALOG = "spark.sql.catalog.updraft"


def _difference(answer: object, expected: object) -> str:
    return "" if answer == expected else f"{answer} instead of {expected}"


def _refusal(client: Client, column: Any, word: str) -> str:
    try:
        answer = client.range(1).select(column).collect()
    except AnalysisException as error:
        return "" if word in str(error) else str(error)
    return f"no error, but {answer}"


def _found(client: Client) -> Iterator[tuple[str, str]]:
    def rows(*columns: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in client.range(2).select(*columns).collect()]

    rebates = [U.call("rebate", F.lit(100.0), version=version) for version in ("", "1", "2")]
    yield "version", _difference(rows(*rebates), [(50.0, 90.0, 50.0)] * 2)
    sums = [U.call("add", "id", "id", pool=pool) for pool in ("default", "elsewhere")]
    yield "pool", _difference(rows(*sums), [(0, 1000), (2, 1002)])
    pinned = U.call("add", "id", "id", pool="elsewhere", version="1")
    yield "both", _difference(rows(pinned), [(1000,), (1002,)])
    names = ["rebate(100.0)", "rebate@1(100.0)", "add@1(id, id)"]
    yield "names", _difference(client.range(2).select(*rebates[:2], pinned).columns, names)
    query = "SELECT updraft.default.`rebate@1`(100), updraft.elsewhere.add(right => 1, left => id) FROM range(1)"
    yield "SQL", _difference([tuple(row) for row in client.sql(query).collect()], [(90.0, 1001)])
    yield "unknown version", _refusal(client, U.call("rebate", "id", version="9"), "rebate@9")
    yield "unknown in this pool", _refusal(client, U.call("only_elsewhere", "id"), "only_elsewhere")


def main(endpoint: str, elsewhere: str) -> None:
    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = "a token"
    pools = {ENDPOINT: endpoint, f"{_CATALOG}.pool.elsewhere": elsewhere}
    catalog = {_CATALOG: "io.updraft.spark.FunctionCatalog"}
    server = local_spark("two-pools", connector=True, conf={**CONNECT, **catalog, **pools})
    port = listening_port(server)
    # The mode that `builder.remote` sets for PySpark's functions if no server runs in the same process.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    client: Client = Client.builder.remote(f"sc://localhost:{port}").create()
    print(json.dumps(dict(_found(client))))
    client.stop()
    del os.environ["SPARK_CONNECT_MODE_ENABLED"]
    server.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
