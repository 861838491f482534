# SPDX-License-Identifier: Apache-2.0
"""transformWithState and transformWithStateInPandas: state variables, timers and initial state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tests.support.spark import runtime_confs
from tests.workers.failures import failure
from tests.workers.scenario import scenario
from tests.workers.streams import VISITS, RestartedStream, rows_of, stream_of, visits

_OUT = "name string, value string"


def _frame(name: str, value: object) -> pd.DataFrame:
    return pd.DataFrame({"name": [name], "value": [str(value)]})


def _in_pandas(frame: DataFrame, processor: StatefulProcessor, **options: Any) -> list[Any]:
    options = {"timeMode": "None", **options}
    grouped = frame.groupBy("name")
    return rows_of(grouped.transformWithStateInPandas(processor, _OUT, "Update", **options), "update")


class _Total(StatefulProcessor):
    """Processor that adds up the numbers of a key in a value state."""

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
def timers_that_are_deleted(spark: SparkSession) -> Any:
    class Timed(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            for time in (100, 200, 300):
                self.handle.registerTimer(time)
            self.handle.deleteTimer(200)
            before = sorted(self.handle.listTimers())
            self.handle.deleteTimer(100)
            yield _frame(key[0], (before, sorted(self.handle.listTimers())))

    frame = stream_of(spark, "name string, t timestamp", [[{"name": "a", "t": "2026-01-01T00:00:00Z"}]])
    return _in_pandas(frame.withWatermark("t", "1 second"), Timed(), timeMode="EventTime")


@scenario(everyday=True)
def states_that_are_read_and_changed_in_turn(spark: SparkSession) -> Any:
    class Mixed(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.first = handle.getValueState("first", "n long, s string")
            self.second = handle.getValueState("second", "n long")
            self.seen = handle.getListState("seen", "n long")
            self.squares = handle.getMapState("squares", "n long", "square long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            found: list[object] = []
            for number in (int(n) for part in rows for n in part["n"]):
                if self.first.exists():
                    found += [self.first.get(), self.second.exists(), self.second.get()]
                if number % 3:
                    self.first.update((number, f"text {number}"))
                    found.append(self.first.get())
                if number % 7 == 0:
                    self.first.clear()
                    found.append(self.first.exists())
                self.second.update((number,))
                self.seen.appendValue((number,))
                if self.squares.containsKey((number % 5,)):
                    found.append(self.squares.getValue((number % 5,)))
                self.squares.updateValue((number % 5,), (number**2,))
                if number % 4 == 0:
                    self.squares.removeKey((0,))
                    self.seen.put([(number,), (-number,)])
            found += [[row[0] for row in self.seen.get()], sorted(pair[0] for pair in self.squares.values())]
            yield _frame(key[0], found)

    batches = [[{"name": f"key {n % 12}", "n": n} for n in range(start, start + 100)] for start in (0, 100)]
    return _in_pandas(stream_of(spark, "name string, n long", batches), Mixed())


@scenario()
def errors_of_state_calls_that_a_processor_catches(spark: SparkSession) -> Any:
    class Catching(_Total):
        def init(self, handle: StatefulProcessorHandle) -> None:
            super().init(handle)
            self.caught = ""
            self.gone = handle.getValueState("gone", "n long")
            handle.deleteIfExists("gone")
            try:
                handle.getValueState("total", "total long")
            except PySparkRuntimeError as error:
                self.caught = str(error)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            yield from super().handleInputRows(key, rows, timerValues)
            yield _frame(key[0], self.caught)
            for attempt in (lambda: self.gone.update((1,)), self.gone.exists, self.gone.clear):
                try:
                    attempt()
                except PySparkRuntimeError as error:
                    yield _frame(key[0], error)

    return _in_pandas(visits(spark), Catching())


@scenario()
def last_change_of_the_last_key_that_fails(spark: SparkSession) -> Any:
    class Timed(_Total):
        def init(self, handle: StatefulProcessorHandle) -> None:
            super().init(handle)
            self.handle = handle

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            yield from super().handleInputRows(key, rows, timerValues)
            if key[0] == "b":
                self.handle.registerTimer(1)  # Fails, because there are no timers without a time mode.

    found = failure(lambda: _in_pandas(visits(spark), Timed()))
    return found["class"], [line for line in found["cause"] if line.startswith("pyspark.errors.")]


def _with_another(first: StatefulProcessor, second: StatefulProcessor, spark: SparkSession) -> list[Any]:
    """Process one batch in a query, and the other batches in a second query that continues from the checkpoint."""
    stream = RestartedStream(spark, "name string, n long")

    def transformed_by(processor: StatefulProcessor) -> Callable[[DataFrame], DataFrame]:
        return lambda frame: frame.groupBy("name").transformWithStateInPandas(processor, _OUT, "Append", "None")

    stream.run(VISITS[:1], transformed_by(first))
    return stream.run(VISITS[1:], transformed_by(second))


@scenario()
def transform_after_a_restart(spark: SparkSession) -> Any:
    return _with_another(_Total(), _Total(), spark)


@scenario()
def transform_with_another_schema_after_a_restart(spark: SparkSession) -> Any:
    class Visits(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.total = handle.getValueState("total", "total long, visits long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            before = self.total.get()
            total, visited = before or (0, 0)
            numbers = [int(n) for part in rows for n in part["n"]]
            self.total.update((total + sum(numbers), (visited or 0) + len(numbers)))
            yield _frame(key[0], (before, self.total.get()))

    with runtime_confs(spark, {"spark.sql.streaming.stateStore.encodingFormat": "avro"}):
        return _with_another(_Total(), Visits(), spark)


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
    """Run transformWithState, whose functions receive rows instead of pandas frames."""

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
