# SPDX-License-Identifier: Apache-2.0
"""Spark Connect server and its client. The server's workers run the client's foreachBatch functions and listeners."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.session import SparkSession as Client

from tests.e2e.applications.connect import CONNECT, listening_port
from tests.support.spark import ENDPOINT, local_spark
from tests.support.waiting import until
from tests.workers.connect_attacks import ATTACKS
from tests.workers.connect_listeners import listener
from tests.workers.python_watch import PythonWatch
from tests.workers.sides import LAUNCHER, PLUGIN
from tests.workers.streams import VISITS, stream_of

TOKEN = "a token of Spark Connect"
BATCH_SECONDS = 2
"""Limit of the pool on a function's time for a batch."""
_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_PLUGINS = "spark.plugins"


def written(client: Client, directory: Path) -> list[Any]:
    return sorted(list(row) for row in client.read.json(str(directory)).collect())


def each_batch(client: Client, directory: Path, function: Callable[[DataFrame, int], None]) -> None:
    """Run a function over the batches of a stream, to the end."""
    visits = stream_of(client, "name string, n long", VISITS)
    writer = visits.writeStream.foreachBatch(function).trigger(availableNow=True)
    writer.option("checkpointLocation", str(directory.with_suffix(".checkpoint"))).start().awaitTermination()


def batches(client: Client, directory: Path) -> list[Any]:
    def write(batch: DataFrame, number: int) -> None:
        total = batch.groupBy().sum("n").collect()[0][0]
        rows = [(number, batch.count(), total, batch.sparkSession.conf.get("spark.sql.session.timeZone"))]
        batch.sparkSession.createDataFrame(rows, "b int, c int, s long, z string").write.mode("append").json(place)

    place = str(directory)
    client.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    each_batch(client, directory, write)
    return written(client, directory)


def large_batches(client: Client, directory: Path) -> list[Any]:
    """Send some megabytes in both directions between a function and its session."""

    def write(batch: DataFrame, number: int) -> None:
        text = batch.selectExpr("repeat(first(name), 5000000) AS t").collect()[0].t
        batch.sparkSession.createDataFrame([(number, text)], "b int, t string").write.mode("append").json(place)

    place = str(directory)
    each_batch(client, directory, write)
    return [[row.b, row.n] for row in client.read.json(place).selectExpr("b", "length(t) AS n").sort("b").collect()]


def failing_batch(client: Client, directory: Path) -> str:
    def fail(_batch: DataFrame, number: int) -> None:
        raise ValueError(f"no batch {number}")

    try:
        each_batch(client, directory, fail)
    except Exception as error:
        return "ValueError: no batch 0" if "ValueError: no batch 0" in str(error) else str(error)
    return "no error"


def two_at_once(client: Client, directory: Path) -> list[Any]:
    places = [directory / name for name in ("one", "two")]
    directory.mkdir()
    found: dict[str, list[Any]] = {}

    def run(place: Path) -> None:
        found[place.name] = batches(client, place)

    threads = [threading.Thread(target=run, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found["one"], found["two"]]


def lines_below(directory: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in directory.glob("part-*"))


def slow_batch(client: Client, directory: Path) -> list[Any]:
    """Process a batch, and wait for the next batch, each time for longer than the pool's limit for a batch."""

    def write(batch: DataFrame, number: int) -> None:
        time.sleep(1.5 * BATCH_SECONDS)
        batch.write.mode("append").json(place)

    place = str(directory)
    stream = stream_of(client, "name string, n long", VISITS)
    writer = stream.writeStream.foreachBatch(write).trigger(processingTime=f"{4 * BATCH_SECONDS} seconds")
    query = writer.option("checkpointLocation", str(directory.with_suffix(".checkpoint"))).start()
    rows = sum(map(len, VISITS))
    until("all batches are written", lambda: lines_below(directory) == rows)
    query.stop()
    return written(client, directory)


_SCENARIOS = (batches, large_batches, failing_batch, two_at_once, slow_batch, listener)


def token_of_a_task(server: SparkSession) -> Any:
    try:
        return server.sparkContext.parallelize([0], 1).map(lambda _: os.environ.get(_VARIABLE)).collect()
    except Exception as error:
        return f"refused: {error}"


def main(endpoint: str, directory: Path, names: Sequence[str], more: dict[str, str]) -> dict[str, Any]:
    """Return the outcomes of these scenarios on the pool at `endpoint`; without an endpoint, on stock."""
    os.environ[_VARIABLE] = TOKEN
    confs = {**CONNECT, **more}
    if endpoint:
        confs |= {ENDPOINT: endpoint, _PLUGINS: f"{confs[_PLUGINS]},{PLUGIN}"}
        python = Path(confs.get("spark.pyspark.python", LAUNCHER))
        server = local_spark("connect", connector=True, conf=confs, python=python)
    else:
        server = local_spark("connect", connector=False, conf=confs)
    client: Client = Client.builder.remote(f"sc://localhost:{listening_port(server)}").create()
    with PythonWatch(os.getpid()) as watch:
        runs: dict[str, Callable[[Client, Path], Any]] = {run.__name__: run for run in (*_SCENARIOS, *ATTACKS)}
        found: dict[str, Any] = {name: runs[name](client, directory / name) for name in names}
        found["token of a task"] = token_of_a_task(server)
        found["pythons"] = watch.seen()
    client.stop()
    server.stop()
    return found


if __name__ == "__main__":
    outcomes = main(sys.argv[1], Path(sys.argv[2]), sys.argv[5:], json.loads(sys.argv[4]))
    Path(sys.argv[3]).write_text(json.dumps(outcomes))
