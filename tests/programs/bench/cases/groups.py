# SPDX-License-Identifier: Apache-2.0
"""Cases that return rows for a group: applyInPandas and applyInArrow, grouped and cogrouped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from tests.programs.bench.case import MILLION, Case, Scene, without_udf

_SCHEMA = "id bigint, k bigint, v double"
_FEW_GROUPS = 8


def _centred_pandas(group: pd.DataFrame) -> pd.DataFrame:
    return group.assign(v=group["v"] - group["v"].mean())


def _centred_arrow(group: pa.Table) -> pa.Table:
    values = group.column("v")
    return group.set_column(2, "v", pc.subtract(values, pc.mean(values)))


def _halved_pandas(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield frame.assign(v=frame["v"] / 2)


def _halved_arrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.set_column(2, "v", pc.divide(batch.column("v"), 2.0))


def _merged_pandas(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    return left.assign(v=left["v"] - right["v"].mean())


def _merged_arrow(left: pa.Table, right: pa.Table) -> pa.Table:
    return left.set_column(2, "v", pc.subtract(left.column("v"), pc.mean(right.column("v"))))


def _grouped(scene: Scene, *, way: str, function: Callable[..., Any], rows_of_group: int | None = None) -> DataFrame:
    rows = scene.grouped(_FEW_GROUPS if rows_of_group is None else max(1, scene.rows // rows_of_group))
    if scene.use is without_udf:
        return rows.repartition("k").sortWithinPartitions("k")
    return getattr(rows.groupBy("k"), way)(function, _SCHEMA)


def _cogrouped(scene: Scene, *, way: str, function: Callable[..., Any]) -> DataFrame:
    left = scene.grouped(max(1, scene.rows // 100)).groupBy("k")
    right = scene.grouped(max(1, scene.rows // 100)).groupBy("k")
    return getattr(left.cogroup(right), way)(function, _SCHEMA)


def _case(name: str, title: str, rows: int, function: Callable[..., Any], **more: Any) -> Case:
    way = "applyInPandas" if "pandas" in name else "applyInArrow"
    since = more.pop("since", (4, 0) if "arrow" in name else (3, 5))
    cogroups = name.startswith("cogroup")
    build = partial(_cogrouped if cogroups else _grouped, way=way, function=function, **more)
    return Case(name, title.format(way), rows, build, since=since, has_floor=not cogroups)


CASES = [
    _case("grouped_pandas_small", "{}, groups of 100 rows", 100_000, _centred_pandas, rows_of_group=100),
    _case("grouped_pandas_large", "{}, 8 large groups", MILLION, _centred_pandas),
    _case("grouped_arrow_small", "{}, groups of 100 rows", 400_000, _centred_arrow, rows_of_group=100),
    _case("grouped_arrow_large", "{}, 8 large groups", MILLION, _centred_arrow),
    _case("grouped_pandas_iterator", "{} with iterators, 8 groups", MILLION, _halved_pandas, since=(4, 2)),
    _case("grouped_arrow_iterator", "{} with iterators, 8 groups", MILLION, _halved_arrow, since=(4, 1)),
    _case("cogroup_pandas", "cogroup {}, 100 + 100 rows", 100_000, _merged_pandas),
    _case("cogroup_arrow", "cogroup {}, 100 + 100 rows", 200_000, _merged_arrow),
]
