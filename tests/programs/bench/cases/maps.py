# SPDX-License-Identifier: Apache-2.0
"""Cases that return any number of rows for a partition: mapInPandas and mapInArrow."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from tests.programs.bench.case import MILLION, Case, Scene


def _add_in_arrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.add(batch.column(0), 1)], ["x"])


def _add_in_pandas(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield pd.DataFrame({"x": frame["id"] + 1})


def _map_in_arrow(scene: Scene) -> DataFrame:
    return scene.numbers().mapInArrow(_add_in_arrow, "x bigint")


def _map_in_pandas(scene: Scene) -> DataFrame:
    return scene.numbers().mapInPandas(_add_in_pandas, "x bigint")


CASES = [
    Case("map_in_arrow", "mapInArrow x+1", 4 * MILLION, _map_in_arrow),
    Case("map_in_pandas", "mapInPandas x+1", 4 * MILLION, _map_in_pandas),
]
