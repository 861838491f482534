# SPDX-License-Identifier: Apache-2.0
"""A Spark Connect server with the connector, and a client that calls registered functions by name."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql.connect import functions as F
from pyspark.sql.connect.session import SparkSession as Client

from tests.e2e.applications.connect import CONNECT, listening_port
from tests.support.spark import ENDPOINT, local_spark
from updraft.spark import functions as U

_CATALOG = {"spark.sql.catalog.updraft": "io.updraft.spark.FunctionCatalog"}
_EXPECTED: dict[str, list[Any]] = {"SQL": [0.0, 80.0], "call": [0.0, 80.0], "aggregate": [50.0]}


def answers(client: Client) -> dict[str, list[Any]]:
    """By the names of `_EXPECTED`."""
    prices = client.range(2).select((F.col("id") * 100).alias("price"))
    frames = {
        "SQL": client.sql("SELECT updraft.default.discount(id * 100, 20) FROM range(2)"),
        "call": prices.select(U.call("discount", "price", F.lit(20))),
        "aggregate": prices.select(U.call("mean", "price")),
    }
    return {name: sorted(row[0] for row in frame.collect()) for name, frame in frames.items()}


def main(endpoint: str) -> None:
    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = "a token"
    server = local_spark("functions-over-connect", connector=True, conf={**CONNECT, **_CATALOG, ENDPOINT: endpoint})
    port = listening_port(server)
    # What `builder.remote` says to PySpark's functions where no server runs in the same process.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    client: Client = Client.builder.remote(f"sc://localhost:{port}").create()
    found = answers(client)
    client.stop()
    del os.environ["SPARK_CONNECT_MODE_ENABLED"]
    print(json.dumps({name: "" if found[name] == _EXPECTED[name] else str(found[name]) for name in _EXPECTED}))
    server.stop()


if __name__ == "__main__":
    main(sys.argv[1])
