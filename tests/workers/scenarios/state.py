# SPDX-License-Identifier: Apache-2.0
"""applyInPandasWithState: a Python state for each key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from tests.workers.failures import failure
from tests.workers.scenario import scenario
from tests.workers.streams import VISITS, RestartedStream, first_rows_of, rows_of, stream_of, visits

_OUT = "name string, total long, visits long"
_STATE = "total long, visits long"


def _totals(key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    total, visited = state.getOption or (0, 0)
    for part in parts:
        total += int(part["n"].sum())
        visited += len(part)
    state.update((total, visited))
    yield pd.DataFrame({"name": [key[0]], "total": [total], "visits": [visited]})


def _counted(frame: DataFrame) -> DataFrame:
    grouped = frame.groupBy("name")
    return grouped.applyInPandasWithState(_totals, _OUT, _STATE, "update", GroupStateTimeout.NoTimeout)


@scenario(everyday=True)
def totals_of_keys(spark: SparkSession) -> Any:
    return rows_of(_counted(visits(spark)), "update")


@scenario()
def broadcast_in_a_state_function(spark: SparkSession) -> Any:
    known = spark.sparkContext.broadcast({"a": 10, "b": 20, "c": 30})

    def weighted(key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        for totals in _totals(key, parts, state):
            yield totals.assign(total=totals["total"] + known.value[key[0]])

    grouped = visits(spark).groupBy("name")
    return rows_of(
        grouped.applyInPandasWithState(weighted, _OUT, _STATE, "update", GroupStateTimeout.NoTimeout), "update"
    )


@scenario()
def many_keys(spark: SparkSession) -> Any:
    batches = [[{"name": f"key {n % 500}", "n": n} for n in range(start, start + 2000)] for start in (0, 2000)]
    rows = rows_of(_counted(stream_of(spark, "name string, n long", batches)), "update")
    return len(rows), rows[::100]


@scenario()
def state_after_a_restart(spark: SparkSession) -> Any:
    """Continue from the checkpoint of another query."""
    stream = RestartedStream(spark, "name string, n long")

    def counted(frame: DataFrame) -> DataFrame:
        return frame.groupBy("name").applyInPandasWithState(
            _totals, _OUT, _STATE, "append", GroupStateTimeout.NoTimeout
        )

    return stream.run(VISITS[:1], counted), stream.run(VISITS[1:], counted)


@scenario()
def state_that_is_removed(spark: SparkSession) -> Any:
    def until_two(key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        seen = (state.get[0] if state.exists else 0) + sum(len(part) for part in parts)
        if seen >= 2:
            state.remove()
        else:
            state.update((seen,))
        yield pd.DataFrame({"name": [key[0]], "seen": [seen], "exists": [state.exists]})

    frame = visits(spark).groupBy("name")
    out = "name string, seen long, exists boolean"
    return rows_of(frame.applyInPandasWithState(until_two, out, "seen long", "append", "NoTimeout"))


@scenario()
def timeout_by_event_time(spark: SparkSession) -> Any:
    def sessions(key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        if state.hasTimedOut:
            (seen,) = state.get
            state.remove()
            yield pd.DataFrame({"name": [key[0]], "seen": [seen]})
        else:
            seen = (state.get[0] if state.exists else 0) + sum(len(part) for part in parts)
            state.update((seen,))
            state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 5000)

    at = "2026-01-01T00:0{}:00Z"
    batches = [
        [{"name": "a", "t": at.format(0)}, {"name": "b", "t": at.format(0)}, {"name": "a", "t": at.format(0)}],
        [{"name": "b", "t": at.format(5)}],
        [{"name": "c", "t": at.format(9)}],
    ]
    frame = stream_of(spark, "name string, t timestamp", batches).withWatermark("t", "1 second").groupBy("name")
    out = "name string, seen long"
    return rows_of(frame.applyInPandasWithState(sessions, out, "seen long", "append", "EventTimeTimeout"))


@scenario()
def timeout_by_processing_time(spark: SparkSession) -> Any:
    def pending(key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        if state.hasTimedOut:
            state.remove()
            yield pd.DataFrame({"name": [key[0]], "why": ["timed out"]})
        else:
            state.update((1,))
            state.setTimeoutDuration(1000)
            yield pd.DataFrame({"name": [key[0]], "why": [f"seen {sum(len(part) for part in parts)}"]})

    frame = stream_of(spark, "name string, n long", VISITS[:1]).groupBy("name")
    out = "name string, why string"
    return first_rows_of(frame.applyInPandasWithState(pending, out, "x long", "append", "ProcessingTimeTimeout"), 4)


@scenario()
def state_of_many_types(spark: SparkSession) -> Any:
    def keep(key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        before = state.getOption
        names = (before[0] if before else "") + "".join(f"{key[0]}{n}" for part in parts for n in part["n"])
        state.update((names, 1.5, None))
        yield pd.DataFrame({"name": [key[0]], "names": [[names]], "before": [repr(before)]})

    frame = visits(spark).groupBy("name")
    out, kept = "name string, names array<string>, before string", "names string, d double, s string"
    return rows_of(frame.applyInPandasWithState(keep, out, kept, "update", "NoTimeout"), "update")


@scenario()
def exception_in_a_state_function(spark: SparkSession) -> Any:
    def refuse(key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        raise ValueError(f"the key {key[0]}")

    frame = visits(spark).where("name = 'a'").groupBy("name")
    counted = frame.applyInPandasWithState(refuse, "x long", "x long", "update", "NoTimeout")
    found = failure(lambda: rows_of(counted, "update"))
    return found["class"], found["cause"]


@scenario()
def state_in_a_batch_query(spark: SparkSession) -> Any:
    frame = spark.createDataFrame([("a", 1)], "name string, n long")
    return failure(lambda: _counted(frame).collect())["class"]
