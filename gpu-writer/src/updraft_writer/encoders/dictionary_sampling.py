# SPDX-License-Identifier: Apache-2.0
"""Which columns repay a dictionary, judged by a sample of the first row group.

Dictionaries on every column, the default of most writers, cost about half of the encoder's time and most of what an
open file retains; on columns of few values they are what makes a file small.
"""

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from updraft_writer.encoders.leaves import leaf_arrays

_SAMPLED_ROWS = 8192
# What the writer allows a dictionary page; beyond it a column falls back to plain values halfway.
_DICTIONARY_PAGE_BYTES = 1024 * 1024
# A dictionary has to save this much of the plain size: it costs time as well.
_WORTHWHILE_FRACTION = 0.75
_LENGTH_PREFIX_BYTES = 4


def columns_worth_a_dictionary(table: pa.Table, paths: Sequence[str]) -> list[str]:
    """The paths of the leaf columns to write with a dictionary; `paths` names all leaves of `table` in order."""
    step = max(1, table.num_rows // _SAMPLED_ROWS)
    sample = table.take(pa.arange(0, table.num_rows, step)).combine_chunks()
    leaves = [leaf for column in sample.columns for leaf in leaf_arrays(_one_chunk(column))]
    return [path for path, leaf in zip(paths, leaves, strict=True) if _repays(leaf, step)]


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)


def _repays(sample: pa.Array, step: int) -> bool:
    values = sample.drop_null()
    if not len(values) or pa.types.is_boolean(values.type) or pa.types.is_null(values.type):
        return False
    width_bytes = _width_bytes(values)
    total = len(values) * step
    distinct = min(total, _estimated_distinct(values))
    index_bits = max(1, math.ceil(math.log2(distinct)))
    dictionary_bytes = distinct * width_bytes
    return (
        dictionary_bytes <= _DICTIONARY_PAGE_BYTES
        and dictionary_bytes + total * index_bits / 8 <= _WORTHWHILE_FRACTION * total * width_bytes
    )


def _estimated_distinct(values: pa.Array) -> float:
    """Distinct values of the whole by Chao's estimator: the more were seen only once, the more were not seen."""
    counts: list[int] = pc.value_counts(values).field("counts").to_pylist()
    once, twice = counts.count(1), counts.count(2)
    return len(counts) + once * (once - 1) / (2 * (twice + 1))


def _width_bytes(values: pa.Array) -> float:
    try:
        return float(values.type.bit_width) / 8
    except ValueError:
        lengths = pc.sum(pc.binary_length(values)).as_py() or 0
        return _LENGTH_PREFIX_BYTES + float(lengths) / len(values)
