# SPDX-License-Identifier: Apache-2.0
"""Cases that return one value for a group or a frame: aggregates and windows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tests.programs.bench.case import Case, Scene
from tests.programs.bench.targets import PYTHON_ROWS

_ROWS_OF_GROUP = 100
_FRAME_ROWS = 5
_WHOLE_GROUP = (Window.unboundedPreceding, Window.unboundedFollowing)


def _pandas_mean(values: pd.Series) -> float:
    return float(values.mean())


def _arrow_mean(values: pa.Array) -> Any:
    return pc.mean(values)


def _pandas_sum_of_batches(batches: Iterator[pd.Series]) -> float:
    return float(sum(values.sum() for values in batches))


def _arrow_sum_of_batches(batches: Iterator[pa.Array]) -> float:
    return float(sum(pc.sum(values).as_py() for values in batches))


def _pandas(scene: Scene) -> DataFrame:
    return _aggregated(scene, F.pandas_udf(_pandas_mean, "double", F.PandasUDFType.GROUPED_AGG))


def _arrow(scene: Scene) -> DataFrame:
    return _aggregated(scene, F.arrow_udf(_arrow_mean, "double", F.ArrowUDFType.GROUPED_AGG))


def _pandas_iterator(scene: Scene) -> DataFrame:
    return _aggregated(scene, F.pandas_udf(_pandas_sum_of_batches, "double", F.PandasUDFType.GROUPED_AGG_ITER))


def _arrow_iterator(scene: Scene) -> DataFrame:
    return _aggregated(scene, F.arrow_udf(_arrow_sum_of_batches, "double", F.ArrowUDFType.GROUPED_AGG_ITER))


def _aggregated(scene: Scene, function: Any) -> DataFrame:
    groups = max(1, scene.rows // _ROWS_OF_GROUP)
    return scene.grouped(groups).groupBy("k").agg(function("v").alias("x"))


def _pandas_window(scene: Scene, frame: tuple[int, int]) -> DataFrame:
    return _windowed(scene, F.pandas_udf(_pandas_mean, "double", F.PandasUDFType.GROUPED_AGG), frame)


def _arrow_window(scene: Scene, frame: tuple[int, int]) -> DataFrame:
    return _windowed(scene, F.arrow_udf(_arrow_mean, "double", F.ArrowUDFType.GROUPED_AGG), frame)


def _windowed(scene: Scene, function: Any, frame: tuple[int, int]) -> DataFrame:
    groups = max(1, scene.rows // _ROWS_OF_GROUP)
    window = Window.partitionBy("k").orderBy("id").rowsBetween(*frame)
    return scene.grouped(groups).select("id", function("v").over(window).alias("x"))


_whole = partial(partial, frame=_WHOLE_GROUP)
_sliding = partial(partial, frame=(-_FRAME_ROWS, 0))

CASES = [
    Case("aggregate_pandas", "pandas_udf aggregate, groups of 100 rows", 400_000, _pandas),
    Case("aggregate_arrow", "arrow_udf aggregate, groups of 100 rows", 400_000, _arrow, since=(4, 1)),
    Case("aggregate_pandas_iterator", "pandas_udf aggregate with iterators", 400_000, _pandas_iterator, since=(4, 2)),
    Case("aggregate_arrow_iterator", "arrow_udf aggregate with iterators", 400_000, _arrow_iterator, since=(4, 2)),
    Case("window_pandas_unbounded", "pandas_udf over whole groups of 100", 400_000, _whole(_pandas_window)),
    Case(
        "window_pandas_bounded",
        "pandas_udf over frames of 6 rows",
        20_000,
        _sliding(_pandas_window),
        target=PYTHON_ROWS,
    ),
    Case("window_arrow_unbounded", "arrow_udf over whole groups of 100", 400_000, _whole(_arrow_window), since=(4, 1)),
    Case(
        "window_arrow_bounded",
        "arrow_udf over frames of 6 rows",
        50_000,
        _sliding(_arrow_window),
        since=(4, 1),
        target=PYTHON_ROWS,
    ),
]
