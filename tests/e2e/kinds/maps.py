# SPDX-License-Identifier: Apache-2.0
"""Kinds that give any number of rows for a partition: mapInArrow and mapInPandas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame

from tests.e2e.kinds.kind import REFUSED_IN_PANDAS, Change, Kind, columns_of, rows_type
from tests.e2e.kinds.seen import rows_in_arrow, rows_in_pandas
from tests.e2e.types import TypeCase


def _types_in_arrow(frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
    names = rows_type(cases).names

    def both(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield rows_in_arrow(batch, names)

    return frame.select("id", *columns_of(cases)).mapInArrow(both, rows_type(cases))


def _types_in_pandas(frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
    names = rows_type(cases).names

    def both(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for part in frames:
            yield rows_in_pandas(part, names)

    return frame.select("id", *columns_of(cases)).mapInPandas(both, rows_type(cases))


def _in_arrow(change: Change) -> Any:
    def over_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([change(batch.column(0))], ["x"])

    return over_batches


def _in_pandas(change: Change) -> Any:
    def over_frames(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield pd.DataFrame({"x": change(frame["id"])})

    return over_frames


_WRONG_IN_ARROW = {
    "names": lambda batches: (pa.RecordBatch.from_pydict({"other": [1]}) for _ in batches),
    "type": lambda batches: (pa.RecordBatch.from_pydict({"x": ["text"]}) for _ in batches),
    "no_batch": lambda batches: (1 for _ in batches),
    "no_iterator": lambda batches: 1,
}
_WRONG_IN_PANDAS = {
    "names": lambda frames: (pd.DataFrame({"other": [1]}) for _ in frames),
    "type": lambda frames: (pd.DataFrame({"x": ["text"]}) for _ in frames),
    "no_frame": lambda frames: (1 for _ in frames),
    "no_iterator": lambda frames: 1,
}

KINDS = [
    Kind(
        "map_in_arrow",
        _types_in_arrow,
        _in_arrow,
        lambda frame, function: frame.mapInArrow(function, "x bigint"),
        _WRONG_IN_ARROW,
    ),
    Kind(
        "map_in_pandas",
        _types_in_pandas,
        _in_pandas,
        lambda frame, function: frame.mapInPandas(function, "x bigint"),
        _WRONG_IN_PANDAS,
        REFUSED_IN_PANDAS,
    ),
]
