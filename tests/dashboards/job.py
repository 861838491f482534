# SPDX-License-Identifier: Apache-2.0
"""A real job on a real pool and writer, watched by a real Prometheus: it succeeds, fails, loses a worker and writes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.dashboards.prometheus import NAMESPACE, Prometheus, services_at
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, local_spark
from tests.support.waiting import until
from tests.support.writer import LocalWriter


@dataclass(frozen=True)
class Job:
    """A job in rounds; metrics show each round seconds after it."""

    spark: SparkSession
    pool: LocalPool
    tables: Path

    def run(self, number: int, tasks: int = 2) -> None:
        """Run one round: functions that work, one that fails, and a write."""
        rows = self.spark.range(0, 10_000, 1, tasks).select(F.pandas_udf(_doubled, "long")("id").alias("doubled"))
        rows.write.format("updraft-parquet").save(str(self.tables / str(number)))
        with pytest.raises(PythonException):
            self.spark.range(1).select(F.pandas_udf(_broken, "long")("id")).collect()

    def lose_a_worker(self) -> None:
        """Kill a worker, and return when another has replaced it."""
        before = {worker.pid for worker in self.pool.workers()}
        self.pool.workers()[0].kill()
        until("another worker is there", lambda: self._healed(before))

    def _healed(self, before: set[int]) -> bool:
        now = {worker.pid for worker in self.pool.workers()}
        return len(now) >= len(before) and now != before


@contextmanager
def watched_job(directory: Path) -> Iterator[tuple[Job, Prometheus]]:
    """The job, and the Prometheus that scrapes its pool and its writer."""
    written, read, tables = (directory / name for name in ("written", "prometheus", "tables"))
    for folder in (written, read, tables):
        folder.mkdir()
    with LocalPool(workers=2) as pool, LocalWriter(written) as writer:
        confs = {
            ENDPOINT: pool.tcp_endpoint,
            "spark.updraft.write.endpoint": writer.tcp_endpoint,
            "spark.updraft.write.delivery": "return",
        }
        targets = {"pool-0": pool.metrics_address, "writer-0": writer.metrics_address}
        with Prometheus(read, services_at(targets, token=pool.metrics_token)) as prometheus:
            spark = local_spark("dashboards", connector=True, conf=confs)
            spark.sparkContext.setLogLevel("FATAL")
            try:
                yield Job(spark, pool, tables), prometheus
            finally:
                spark.stop()


def asked(query: str) -> str:
    """The query as Grafana would send it, with its variables replaced."""
    return query.replace("$__rate_interval", "20s").replace("$namespace", NAMESPACE).replace("$pod", ".+")


def _doubled(values: pd.Series) -> pd.Series:
    # Long enough for Prometheus, which scrapes every second, to see the exchange in flight.
    time.sleep(1.5)
    return values * 2


def _broken(values: pd.Series) -> pd.Series:
    raise ValueError("as it was meant to")
