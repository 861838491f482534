# SPDX-License-Identifier: Apache-2.0
"""transformWithState and transformWithStateInPandas: state variables, timers and initial state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tests.support.spark import runtime_confs
from tests.workers.failures import failure
from tests.workers.scenario import scenario
from tests.workers.streams import rows_of, stream_of, visits

_OUT = "name string, value string"


def _frame(name: str, value: object) -> pd.DataFrame:
    return pd.DataFrame({"name": [name], "value": [str(value)]})


def _in_pandas(frame: DataFrame, processor: StatefulProcessor, **options: Any) -> list[Any]:
    options = {"timeMode": "None", **options}
    grouped = frame.groupBy("name")
    return rows_of(grouped.transformWithStateInPandas(processor, _OUT, "Update", **options), "update")


class _Total(StatefulProcessor):
    """Sum of the numbers of a key, in a value."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        total = self.total.get()[0] if self.total.exists() else 0
        total += sum(int(part["n"].sum()) for part in rows)
        self.total.update((total,))
        yield _frame(key[0], total)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803
        self.total.update((int(initialState["first"].iloc[0]),))


@scenario()
def value_state(spark: SparkSession) -> Any:
    return _in_pandas(visits(spark), _Total())


@scenario()
def value_states_of_many_keys(spark: SparkSession) -> Any:
    batches = [[{"name": f"key {n % 200}", "n": n} for n in range(start, start + 1000)] for start in (0, 1000)]
    rows = _in_pandas(stream_of(spark, "name string, n long", batches), _Total())
    return len(rows), rows[::50]


@scenario()
def initial_state(spark: SparkSession) -> Any:
    first = spark.createDataFrame([("a", 100), ("b", 200), ("z", 300)], "name string, first long").groupBy("name")
    return _in_pandas(visits(spark), _Total(), initialState=first)


@scenario()
def list_state(spark: SparkSession) -> Any:
    class Seen(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.seen = handle.getListState("seen", "n long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            for part in rows:
                self.seen.appendList([(int(n),) for n in part["n"]])
            self.seen.appendValue((-1,))
            yield _frame(key[0], [row[0] for row in self.seen.get()])

    return _in_pandas(visits(spark), Seen())


@scenario()
def map_state(spark: SparkSession) -> Any:
    class Seen(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.seen = handle.getMapState("seen", "n long", "square long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            for part in rows:
                for number in part["n"]:
                    self.seen.updateValue((int(number),), (int(number) ** 2,))
            self.seen.removeKey((3,))
            found = sorted((key[0], value[0]) for key, value in self.seen.iterator())
            yield _frame(key[0], (found, self.seen.containsKey((1,)), self.seen.containsKey((3,))))

    return _in_pandas(visits(spark), Seen())


@scenario()
def state_that_is_cleared(spark: SparkSession) -> Any:
    class Cleared(_Total):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            existed = self.total.exists()
            yield from super().handleInputRows(key, rows, timerValues)
            if existed:
                self.total.clear()

    return _in_pandas(visits(spark), Cleared())


@scenario()
def state_with_a_time_to_live(spark: SparkSession) -> Any:
    class Lives(_Total):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.total = handle.getValueState("total", "total long", ttlDurationMs=3_600_000)

    # Otherwise Spark runs a batch without data after each batch.
    with runtime_confs(spark, {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}):
        return _in_pandas(visits(spark), Lives(), timeMode="ProcessingTime")


@scenario()
def timers_by_event_time(spark: SparkSession) -> Any:
    class Timed(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            for part in rows:
                for time in part["t"]:
                    self.handle.registerTimer(int(time.timestamp() * 1000) + 1000)
            yield _frame(key[0], len(list(self.handle.listTimers())))

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            yield _frame(key[0], f"expired {expiredTimerInfo.getExpiryTimeInMs()}")

    at = "2026-01-01T00:0{}:00Z"
    batches = [
        [{"name": "a", "t": at.format(0)}, {"name": "b", "t": at.format(1)}],
        [{"name": "b", "t": at.format(5)}],
        [{"name": "c", "t": at.format(9)}],
    ]
    frame = stream_of(spark, "name string, t timestamp", batches).withWatermark("t", "1 second")
    return _in_pandas(frame, Timed(), timeMode="EventTime")


@scenario()
def transform_in_a_batch_query(spark: SparkSession) -> Any:
    frame = spark.createDataFrame([("a", 1), ("b", 2), ("a", 3)], "name string, n long")
    grouped = frame.groupBy("name")
    return sorted(map(list, grouped.transformWithStateInPandas(_Total(), _OUT, "Update", "None").collect()))


@scenario()
def exception_in_a_transform(spark: SparkSession) -> Any:
    class Refusing(_Total):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            raise ValueError(f"the key {key[0]}")

    found = failure(lambda: _in_pandas(visits(spark).where("name = 'a'"), Refusing()))
    return found["class"], found["cause"]


@scenario(since=(4, 1))
def transform_of_rows(spark: SparkSession) -> Any:
    """Run transformWithState, which gets rows instead of pandas frames."""

    class Total(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.total = handle.getValueState("total", "total long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
            total = self.total.get()[0] if self.total.exists() else 0
            total += sum(row.n for row in rows)
            self.total.update((total,))
            yield Row(name=key[0], value=str(total))

    grouped = visits(spark).groupBy("name")
    return rows_of(grouped.transformWithState(Total(), _OUT, "Update", "None"), "update")
