# SPDX-License-Identifier: Apache-2.0
"""Trace of a job: one tree from its query on the driver to the workers and the writer's storage."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.collector import CollectedSpan, Collector
from tests.support.pool import LocalPool
from tests.support.spark import ENDPOINT, runtime_confs
from tests.support.writer import LocalWriter

_TRACE = "spark.updraft.trace.endpoint"
_TASKS = 2
_PARENTS = {
    "updraft.query": "",
    "updraft.task.exchange": "updraft.query",
    "updraft.pool.exchange": "updraft.task.exchange",
    "updraft.pool.admission": "updraft.pool.exchange",
    "updraft.pool.function": "updraft.pool.exchange",
    "updraft.task.file": "updraft.query",
    "updraft.writer.file": "updraft.task.file",
    "updraft.writer.encode": "updraft.writer.file",
    "updraft.writer.store": "updraft.writer.file",
    "updraft.writer.publish": "updraft.writer.file",
}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def confs(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    arguments = ["--trace-endpoint", collector.endpoint]
    root = tmp_path_factory.mktemp("written")
    with LocalPool(workers=_TASKS, arguments=arguments) as pool, LocalWriter(root, arguments=arguments) as writer:
        yield {
            ENDPOINT: pool.tcp_endpoint,
            "spark.updraft.write.endpoint": writer.tcp_endpoint,
            "spark.updraft.write.delivery": "return",
            _TRACE: collector.endpoint,
        }


@pytest.fixture
def traced(spark: SparkSession, confs: dict[str, str], collector: Collector) -> Iterator[SparkSession]:
    collector.turn_page()
    with runtime_confs(spark, confs):
        yield spark


def _doubled(spark: SparkSession) -> DataFrame:
    @F.pandas_udf("long")
    def doubled(values: pd.Series) -> pd.Series:
        return values * 2

    return spark.range(0, 1000, 1, _TASKS).select(doubled("id").alias("doubled"))


def test_the_spans_of_a_job_form_one_tree(traced: SparkSession, collector: Collector, tmp_path: Path) -> None:
    _doubled(traced).write.format("updraft-parquet").save(str(tmp_path / "files"))
    spans = collector.until("a span of each kind, and its parent", _is_a_tree)
    by_id = {span.id: span for span in spans}
    assert len({span.trace for span in spans}) == 1
    assert {span.name: by_id[span.parent].name if span.parent else "" for span in spans} == _PARENTS
    for span in spans:
        outer = by_id.get(span.parent, span)
        assert outer.started <= span.started <= span.ended, span.name
        assert not span.failed, span.name


def test_spans_say_whose_they_are(traced: SparkSession, collector: Collector) -> None:
    _doubled(traced).collect()
    spans = collector.until("both tasks' spans", lambda so_far: _count(so_far)["updraft.pool.exchange"] == _TASKS)
    application = traced.sparkContext.applicationId
    exchanges = [span for span in spans if span.name == "updraft.pool.exchange"]
    assert {span.attributes["updraft.application"] for span in exchanges} == {application}
    assert {span.attributes["updraft.partition"] for span in exchanges} == {"0", "1"}
    assert {span.attributes["updraft.function"] for span in exchanges} == {"session"}
    assert {span.service for span in exchanges} == {"updraft-pool"}


def test_a_failure_is_the_status_of_every_span_that_it_passed(traced: SparkSession, collector: Collector) -> None:
    @F.pandas_udf("long")
    def broken(values: pd.Series) -> pd.Series:
        raise ValueError("a secret of the data")

    with pytest.raises(Exception, match="a secret of the data"):
        traced.range(0, 10, 1, 1).select(broken("id")).collect()
    names = {"updraft.query", "updraft.task.exchange", "updraft.pool.exchange", "updraft.pool.function"}
    spans = collector.until("the spans of the failure", lambda so_far: _failed(so_far) >= names)
    assert _failed(spans) == names
    (function,) = (span for span in spans if span.name == "updraft.pool.function")
    assert function.attributes["error.type"] == "UserError"
    assert function.attributes["exception.type"] == "ValueError"


def test_a_collector_that_is_gone_fails_nothing(traced: SparkSession) -> None:
    with socket.socket() as unserved:
        unserved.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{unserved.getsockname()[1]}"
        with runtime_confs(traced, {_TRACE: nobody}):
            assert len(_doubled(traced).collect()) == 1000


def _is_a_tree(spans: Sequence[CollectedSpan]) -> bool:
    """Return whether there is a span of each kind, and every parent has arrived."""
    parents, ids = {span.parent for span in spans} - {""}, {span.id for span in spans}
    return {span.name for span in spans} >= _PARENTS.keys() and parents <= ids


def _count(spans: Sequence[CollectedSpan]) -> Counter[str]:
    return Counter(span.name for span in spans)


def _failed(spans: Sequence[CollectedSpan]) -> set[str]:
    return {span.name for span in spans if span.failed}
