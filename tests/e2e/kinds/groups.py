# SPDX-License-Identifier: Apache-2.0
"""Kinds that give rows for a group: applyInPandas and applyInArrow in every signature, grouped and cogrouped.

The matrix groups by `shape`, the hundreds of `id`, so each group was a partition of the table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.e2e.kinds.kind import REFUSED, REFUSED_IN_PANDAS, Change, Kind, columns_of, rows_type
from tests.e2e.kinds.seen import rows_in_arrow, rows_in_pandas
from tests.e2e.types import TypeCase

_RESULT = "x bigint"
# Spark recognizes the signatures of grouped functions by their annotations.
_Frames = Iterator[pd.DataFrame]
_Batches = Iterator[pa.RecordBatch]
_Key = tuple[Any, ...]
_ArrowKey = tuple[pa.Scalar, ...]

Rows = Callable[[Any], Any]


def _pandas(change: Rows) -> Any:
    def on_group(group: pd.DataFrame) -> pd.DataFrame:
        return change(group)

    return on_group


def _pandas_with_key(change: Rows) -> Any:
    def on_group(key: _Key, group: pd.DataFrame) -> pd.DataFrame:
        assert len(key) == 1
        return change(group)

    return on_group


def _pandas_iterator(change: Rows) -> Any:
    def on_group(frames: _Frames) -> _Frames:
        for frame in frames:
            yield change(frame)

    return on_group


def _pandas_iterator_with_key(change: Rows) -> Any:
    def on_group(key: _Key, frames: _Frames) -> _Frames:
        assert len(key) == 1
        for frame in frames:
            yield change(frame)

    return on_group


def _arrow(change: Rows) -> Any:
    def on_group(group: pa.Table) -> pa.Table:
        return change(group)

    return on_group


def _arrow_with_key(change: Rows) -> Any:
    def on_group(key: _ArrowKey, group: pa.Table) -> pa.Table:
        assert len(key) == 1
        return change(group)

    return on_group


def _arrow_iterator(change: Rows) -> Any:
    def on_group(batches: _Batches) -> _Batches:
        for batch in batches:
            yield change(batch)

    return on_group


def _arrow_iterator_with_key(change: Rows) -> Any:
    def on_group(key: _ArrowKey, batches: _Batches) -> _Batches:
        assert len(key) == 1
        for batch in batches:
            yield change(batch)

    return on_group


def _pandas_pair(change: Rows) -> Any:
    def on_groups(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
        return change(pd.concat([left, right]))

    return on_groups


def _pandas_pair_with_key(change: Rows) -> Any:
    def on_groups(key: _Key, left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
        assert len(key) == 1
        return change(pd.concat([left, right]))

    return on_groups


def _arrow_pair(change: Rows) -> Any:
    def on_groups(left: pa.Table, right: pa.Table) -> pa.Table:
        return change(pa.concat_tables([left, right]))

    return on_groups


def _arrow_pair_with_key(change: Rows) -> Any:
    def on_groups(key: _ArrowKey, left: pa.Table, right: pa.Table) -> pa.Table:
        assert len(key) == 1
        return change(pa.concat_tables([left, right]))

    return on_groups


def _ids_in_pandas(change: Change) -> Rows:
    return lambda frame: pd.DataFrame({"x": change(frame["id"])})


def _ids_in_arrow(change: Change) -> Rows:
    def ids(rows: Any) -> Any:
        values = rows.column("id")
        whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        return type(rows).from_arrays([change(whole)], ["x"])

    return ids


def _rows_in_arrow(rows: Any, names: list[str]) -> Any:
    results = rows_in_arrow(rows, names)
    return type(rows).from_arrays([_in_utc(values) for values in results.columns], names)


def _in_utc(values: Any) -> Any:
    """Convert instants to UTC, which stock expects, although it passes them in the session's time zone."""
    kind = values.type
    if pa.types.is_list(kind):
        return values.cast(pa.list_(kind.value_field.with_type(_utc(kind.value_type))))
    return values.cast(_utc(kind))


def _utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _grouped(frame: DataFrame, function: Any, result: Any, key: Any, way: str) -> DataFrame:
    return getattr(frame.groupBy(key), way)(function, result)


def _cogrouped(frame: DataFrame, function: Any, result: Any, key: Any, way: str) -> DataFrame:
    # The sides share only one key, and neither has all: the left lacks one group, the right another.
    left, right = frame.where(key != 0), frame.where(key != 2)
    return getattr(left.groupBy(key).cogroup(right.groupBy(key)), way)(function, result)


def _kind(
    name: str,
    signature: Callable[[Rows], Any],
    wrong: dict[str, Any],
    since: tuple[int, int] = (3, 5),
    run: Callable[..., DataFrame] = _grouped,
) -> Kind:
    pandas = "pandas" in name
    way = "applyInPandas" if pandas else "applyInArrow"
    ids, rows = (_ids_in_pandas, rows_in_pandas) if pandas else (_ids_in_arrow, _rows_in_arrow)

    def query(frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
        change = functools.partial(rows, names=rows_type(cases).names)
        shape = (F.col("id") / 100).cast("int")
        return run(frame.select("id", *columns_of(cases)), signature(change), rows_type(cases), shape, way)

    return Kind(
        name,
        query,
        lambda change: signature(ids(change)),
        lambda frame, function: run(frame, function, _RESULT, F.col("k"), way),
        {label: signature(change) for label, change in wrong.items()},
        REFUSED_IN_PANDAS if pandas else REFUSED,
        over_groups=True,
        since=since,
    )


_WRONG_IN_PANDAS = {
    "names": lambda frame: pd.DataFrame({"other": [1]}),
    "type": lambda frame: pd.DataFrame({"x": ["text"]}),
    "no_frame": lambda frame: 1,
}
_WRONG_IN_ARROW = {
    "names": lambda rows: type(rows).from_pydict({"other": [1]}),
    "type": lambda rows: type(rows).from_pydict({"x": ["text"]}),
    "no_table": lambda rows: 1,
}
_cogroup = functools.partial(_kind, run=_cogrouped)

KINDS = [
    _kind("grouped_pandas", _pandas, _WRONG_IN_PANDAS),
    _kind("grouped_pandas_key", _pandas_with_key, {}),
    _kind("grouped_pandas_iterator", _pandas_iterator, _WRONG_IN_PANDAS, (4, 1)),
    _kind("grouped_pandas_iterator_key", _pandas_iterator_with_key, {}, (4, 1)),
    _kind("grouped_arrow", _arrow, _WRONG_IN_ARROW, (4, 0)),
    _kind("grouped_arrow_key", _arrow_with_key, {}, (4, 0)),
    _kind("grouped_arrow_iterator", _arrow_iterator, _WRONG_IN_ARROW, (4, 1)),
    _kind("grouped_arrow_iterator_key", _arrow_iterator_with_key, {}, (4, 1)),
    _cogroup("cogroup_pandas", _pandas_pair, _WRONG_IN_PANDAS),
    _cogroup("cogroup_pandas_key", _pandas_pair_with_key, {}),
    _cogroup("cogroup_arrow", _arrow_pair, _WRONG_IN_ARROW, (4, 0)),
    _cogroup("cogroup_arrow_key", _arrow_pair_with_key, {}, (4, 0)),
]
