# SPDX-License-Identifier: Apache-2.0
"""No panel stays empty beside a job that works, fails, loses a worker and writes; Prometheus takes every alert."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import yaml
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.chart.chart import CHART
from tests.dashboards.prometheus import NAMESPACE, Prometheus, services_at
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, local_spark
from tests.support.waiting import until
from tests.support.writer import LocalWriter

_PANELS = [
    (f"{board['title']}: {panel['title']}: {target['legendFormat']}", target["expr"])
    for board in (json.loads(path.read_text()) for path in sorted((CHART / "dashboards").glob("*.json")))
    for panel in board["panels"]
    for target in panel["targets"]
]
_ALERTS = [(alert["alert"], alert["expr"]) for alert in yaml.safe_load((CHART / "alerts.yaml").read_text())]
_QUERIES = {query for _, query in _PANELS}
# What a round does is seen in the seconds after it.
_ROUNDS = 8
_HEALED_SECONDS = 30


@dataclass(frozen=True)
class _Job:
    spark: SparkSession
    pool: LocalPool
    tables: Path

    def run(self, number: int) -> None:
        """One round of everything that a panel shows."""
        rows = self.spark.range(0, 10_000, 1, 2).select(F.pandas_udf(_doubled, "long")("id").alias("doubled"))
        rows.write.format("updraft-parquet").save(str(self.tables / str(number)))
        with pytest.raises(PythonException):
            self.spark.range(1).select(F.pandas_udf(_broken, "long")("id")).collect()
        before = {worker.pid for worker in self.pool.workers()}
        self.pool.workers()[0].kill()
        until("another worker is there", lambda: self._healed(before), timeout_seconds=_HEALED_SECONDS)

    def _healed(self, before: set[int]) -> bool:
        now = {worker.pid for worker in self.pool.workers()}
        return len(now) >= len(before) and now != before


def _doubled(values: pd.Series) -> pd.Series:
    # Long enough for Prometheus, which looks each second, to see the exchange in flight.
    time.sleep(1.5)
    return values * 2


def _broken(values: pd.Series) -> pd.Series:
    raise ValueError("as it was meant to")


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalPool, LocalWriter]]:
    with LocalPool(workers=2) as pool, LocalWriter(tmp_path_factory.mktemp("tables")) as writer:
        yield pool, writer


@pytest.fixture(scope="module")
def job(services: tuple[LocalPool, LocalWriter], tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Job]:
    pool, writer = services
    confs = {
        ENDPOINT: pool.tcp_endpoint,
        "spark.updraft.write.endpoint": writer.tcp_endpoint,
        "spark.updraft.write.delivery": "return",
    }
    spark = local_spark("dashboards", connector=True, conf=confs)
    spark.sparkContext.setLogLevel("FATAL")
    yield _Job(spark, pool, tmp_path_factory.mktemp("written"))
    spark.stop()


@pytest.fixture(scope="module")
def prometheus(
    services: tuple[LocalPool, LocalWriter], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    pool, writer = services
    targets = {"pool-0": pool.metrics_address, "writer-0": writer.metrics_address}
    with Prometheus(tmp_path_factory.mktemp("prometheus"), services_at(targets)) as prometheus:
        yield prometheus


@pytest.fixture(scope="module")
def answered(prometheus: Prometheus, job: _Job) -> set[str]:
    """The queries that gave a number, at some time."""
    found: set[str] = set()
    for number in range(_ROUNDS):
        job.run(number)
        found |= {query for query in _QUERIES - found if prometheus.samples(_asked(query))}
        if found == _QUERIES:
            break
    return found


def _asked(query: str) -> str:
    """As Grafana asks it: with what its variables stand for."""
    return query.replace("$__rate_interval", "20s").replace("$namespace", NAMESPACE).replace("$pod", ".+")


@pytest.mark.parametrize("query", [query for _, query in _PANELS], ids=[shown for shown, _ in _PANELS])
def test_every_line_of_a_panel_has_data(answered: set[str], query: str) -> None:
    assert query in answered


@pytest.mark.parametrize("expression", [query for _, query in _ALERTS], ids=[alert for alert, _ in _ALERTS])
def test_prometheus_takes_every_alert(prometheus: Prometheus, expression: str) -> None:
    prometheus.samples(expression)


def test_a_query_that_asks_for_nothing_would_be_found(prometheus: Prometheus) -> None:
    assert prometheus.samples("updraft_invented_total") == []
    with pytest.raises(ValueError, match="parse error"):
        prometheus.samples("sum by (pod (updraft_workers)")
