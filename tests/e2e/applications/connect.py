# SPDX-License-Identifier: Apache-2.0
"""Spark Connect server with the connector, and clients whose artifacts have the same names and different bytes."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession as Server
from pyspark.sql.connect import functions as F
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.session import SparkSession as Client

from tests.support.paths import BUILD
from tests.support.spark import ENABLED, ENDPOINT, SPARK_VERSION, local_spark

# PySpark on PyPI includes the Connect server since 4.0. `make services-on-3.5` fetches that of 3.5.
_SERVER = {"spark.driver.extraClassPath": str(BUILD / "spark-3.5-connect/*")} if SPARK_VERSION < (4, 0) else {}
CONNECT = {
    **_SERVER,
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    "spark.log.level": "FATAL",
}


def described(number: int) -> str:
    import helper  # type: ignore[import-not-found]

    return Path(SparkFiles.get("table.txt")).read_text() + str(helper.describe(number))


def in_arrow(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"text": [described(number) for number in batch.column(0).to_pylist()]})


def in_pandas(group: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"text": [described(len(group))]})


def scalar(*, arrow: bool) -> Callable[[DataFrame], DataFrame]:
    return lambda numbers: numbers.select(F.udf(described, "string", useArrow=arrow)("id"))


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "udf": scalar(arrow=False),
    "udf over Arrow": scalar(arrow=True),
    "mapInArrow": lambda numbers: numbers.mapInArrow(in_arrow, "text string"),
    "applyInPandas": lambda numbers: numbers.groupBy("id").applyInPandas(in_pandas, "text string"),
}


def session(port: int, directory: Path, name: str) -> Client:
    """Return a client with its own module and file."""
    directory.joinpath("helper.py").write_text(f"def describe(n):\n    return f'{name} {{n}}'\n")
    directory.joinpath("table.txt").write_text(f"table of {name}: ")
    client: Client = Client.builder.remote(f"sc://localhost:{port}").create()
    client.addArtifacts(str(directory / "helper.py"), pyfile=True)
    client.addArtifacts(str(directory / "table.txt"), file=True)
    return client


def difference(client: Client, name: str, query: Callable[[DataFrame], DataFrame]) -> str:
    """Return the pool's answer if it differs from stock's, or what did not run on the pool."""
    answers = {}
    for enabled in ("false", "true"):
        client.conf.set(ENABLED, enabled)
        frame = query(client.range(0, 4, 1, 2))
        plan = str(frame._explain_string())
        if ("Flight" in plan) is not (enabled == "true"):
            return plan
        answers[enabled] = sorted(row[0] for row in frame.collect())
    is_own = all(f"table of {name}: {name} " in text for text in answers["true"])
    return "" if is_own and answers["true"] == answers["false"] else str(answers)


def listening_port(server: Server) -> int:
    service = getattr(server._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return int(getattr(service, "MODULE$").localPort())


def main(endpoint: str, confs: Mapping[str, str]) -> None:
    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = "a token"
    server = local_spark("connect", connector=True, conf={**CONNECT, ENDPOINT: endpoint, **confs})
    differences = {}
    for name in ("first", "second"):
        with tempfile.TemporaryDirectory() as directory:
            client = session(listening_port(server), Path(directory), name)
            for kind, query in QUERIES.items():
                differences[f"{kind}, {name} session"] = difference(client, name, query)
            client.stop()
    print(json.dumps(differences))
    server.stop()


if __name__ == "__main__":
    main(sys.argv[1], dict(argument.split("=", 1) for argument in sys.argv[2:]))
