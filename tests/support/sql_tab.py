# SPDX-License-Identifier: Apache-2.0
"""Queries and stages that a Spark has run, with metrics, from the SQL tab and the stages tab."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from tests.support.spark import wait_for_listeners


class Operator(NamedTuple):
    """Operator of a query; `metrics` has the texts that the tab shows, by name."""

    name: str
    metrics: dict[str, str]


def last_query(spark: SparkSession) -> int:
    """Return the number of the query that Spark began last; -1 if there is none."""
    wait_for_listeners(spark)
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    return max((execution.executionId() for execution in _elements(executions)), default=-1)


def operators_since(spark: SparkSession, query: int) -> list[Operator]:
    """Return the operators of all queries after this one, including commands and their inner queries."""
    wait_for_listeners(spark)
    store = spark._jsparkSession.sharedState().statusStore()
    found = []
    for execution in _elements(store.executionsList()):
        if (number := execution.executionId()) > query:
            values = store.executionMetrics(number)
            for node in _elements(store.planGraph(number).allNodes()):
                shown = {metric.name(): values.get(metric.accumulatorId()) for metric in _elements(node.metrics())}
                texts = {name: str(value.get()) for name, value in shown.items() if value.isDefined()}
                found.append(Operator(node.name(), texts))
    return found


class Stage(NamedTuple):
    """Stage with the rows and bytes that its tasks have written, and its named accumulators as texts."""

    rows: int
    output_bytes: int
    accumulators: dict[str, str]


def stages(spark: SparkSession) -> list[Stage]:
    """Return the stages that this Spark has run and still knows, the newest first."""
    wait_for_listeners(spark)
    context = spark.sparkContext
    no_quantiles = context._gateway.new_array(context._jvm.double, 0)
    found = context._jsc.sc().statusStore().stageList(None, False, False, no_quantiles, None)
    return [
        Stage(
            stage.outputRecords(),
            stage.outputBytes(),
            {update.name(): str(update.value()) for update in _elements(stage.accumulatorUpdates())},
        )
        for stage in _elements(found)
    ]


def _elements(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(index) for index in range(sequence.size()))
