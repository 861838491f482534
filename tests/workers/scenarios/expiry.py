# SPDX-License-Identifier: Apache-2.0
"""State and timers of transformWithStateInPandas that expire by processing time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tests.support.spark import runtime_confs
from tests.workers.scenario import scenario
from tests.workers.streams import VISITS, RestartedStream, first_rows_of, stream_of

_IN, _OUT = "name string, n long", "name string, value string"
_SHORT_MS, _LONG_MS = 1000, 3_600_000


def _frame(name: str, value: object) -> pd.DataFrame:
    return pd.DataFrame({"name": [name], "value": [str(value)]})


def _around_an_expiry(spark: SparkSession, processor: StatefulProcessor) -> list[Any]:
    """Process a batch, wait for the short time to live, and process another batch. Return the rows after each batch."""
    stream = RestartedStream(spark, _IN)

    def query(frame: DataFrame) -> DataFrame:
        return frame.groupBy("name").transformWithStateInPandas(processor, _OUT, "Append", "ProcessingTime")

    # A batch without data would remove expired state before the second batch could read it.
    with runtime_confs(spark, {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}):
        first = stream.run([[{"name": "a", "n": 1}, {"name": "b", "n": 2}]], query)
        # The time to live began with the batch, so it has passed after this sleep.
        time.sleep(_SHORT_MS / 1000)
        return [first, stream.run([[{"name": "a", "n": 3}, {"name": "c", "n": 4}]], query)]


@scenario(seconds=120)
def values_that_expire(spark: SparkSession) -> Any:
    class Values(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.short = handle.getValueState("short", "n long", ttlDurationMs=_SHORT_MS)
            self.long = handle.getValueState("long", "n long", ttlDurationMs=_LONG_MS)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            states = (self.short, self.long)
            found: list[Any] = [(state.exists(), state.get()) for state in states]
            for number in (int(n) for part in rows for n in part["n"]):
                for state in states:
                    state.update((number,))
            yield _frame(key[0], found + [state.get() for state in states])

    return _around_an_expiry(spark, Values())


@scenario(seconds=120)
def lists_that_expire(spark: SparkSession) -> Any:
    class Lists(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.short = handle.getListState("short", "n long", ttlDurationMs=_SHORT_MS)
            self.long = handle.getListState("long", "n long", ttlDurationMs=_LONG_MS)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            states = (self.short, self.long)
            found: list[Any] = [(state.exists(), list(state.get())) for state in states]
            numbers = [(int(n),) for part in rows for n in part["n"]]
            for state in states:
                state.appendList(numbers)
                state.appendValue((-1,))
            yield _frame(key[0], found + [list(state.get()) for state in states])

    return _around_an_expiry(spark, Lists())


@scenario(seconds=120)
def maps_that_expire(spark: SparkSession) -> Any:
    class Maps(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.short = handle.getMapState("short", "n long", "square long", ttlDurationMs=_SHORT_MS)
            self.long = handle.getMapState("long", "n long", "square long", ttlDurationMs=_LONG_MS)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            states = (self.short, self.long)
            found: list[Any] = [
                (state.exists(), state.containsKey((1,)), state.getValue((1,)), sorted(state.keys()))
                for state in states
            ]
            for number in (int(n) for part in rows for n in part["n"]):
                for state in states:
                    state.updateValue((number,), (number**2,))
            yield _frame(key[0], found + [sorted(state.iterator()) for state in states])

    return _around_an_expiry(spark, Maps())


@scenario(everyday=True, seconds=120)
def timers_by_processing_time(spark: SparkSession) -> Any:
    """Register, list and delete timers, wait until a timer expires, and let it register another timer."""

    class Timed(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle
            self.began = handle.getValueState("began", "t long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            now = timerValues.getCurrentProcessingTimeInMs()
            self.began.update((now,))
            for later in (500, 1000, _LONG_MS):
                self.handle.registerTimer(now + later)
            before = self._timers()
            self.handle.deleteTimer(now + 500)
            yield _frame(key[0], (before, self._timers()))

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            now, expiry = timerValues.getCurrentProcessingTimeInMs(), expiredTimerInfo.getExpiryTimeInMs()
            later = expiry - self.began.get()[0]
            if later == 1000:
                # The new timer has already expired, so a later batch handles it at once.
                self.handle.registerTimer(expiry + 1)
                self.handle.deleteTimer(self.began.get()[0] + _LONG_MS)
            yield _frame(key[0], (f"expired {later}", now >= expiry, self._timers()))

        def _timers(self) -> list[int]:
            return sorted(timer - self.began.get()[0] for timer in self.handle.listTimers())

    frame = stream_of(spark, _IN, VISITS[:1]).groupBy("name")
    # Each of the two keys returns a row for its input, and a row for each of its two timers that expire.
    return first_rows_of(frame.transformWithStateInPandas(Timed(), _OUT, "Append", "ProcessingTime"), 6)
