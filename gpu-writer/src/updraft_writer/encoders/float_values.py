# SPDX-License-Identifier: Apache-2.0
"""Search for Parquet column chunks whose statistics, dictionary or bloom filter would make readers miss floats.

Two kinds of values are affected:

- NaN. Encoders leave NaN out of minimum and maximum, but Spark, DuckDB and polars treat NaN as the largest value. NaN
  has many bit patterns, and each bit pattern has its own hash in a bloom filter.
- Zero. 0.0 equals -0.0, but bloom filters hash bits, and parquet-java compares the bits of a dictionary's values.
  Bounds are safe: encoders store a minimum of zero as -0.0 and a maximum of zero as 0.0.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Sequence
from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from updraft_writer.encoders.leaves import leaf_arrays, leaf_types
from updraft_writer.encoders.parquet_footer import Skipping

_NAN = Skipping.BOUNDS | Skipping.BLOOM_FILTER
_ZERO = Skipping.DICTIONARY | Skipping.BLOOM_FILTER


class FloatValues:
    """Record of NaN and zeros in the rows of one file. Columns without floats cost nothing.

    `matched_by_bits` contains the numbers of the leaf columns that have a dictionary or a bloom filter.
    """

    def __init__(self, schema: pa.Schema, *, matched_by_bits: Container[int]) -> None:
        self._matched_by_bits = matched_by_bits
        self._first_leaves: dict[int, int] = {}
        leaf = 0
        for index, field in enumerate(schema):
            leaves = list(leaf_types(field.type))
            if any(map(is_float, leaves)):
                self._first_leaves[index] = leaf
            leaf += len(leaves)
        self._tables: list[tuple[int, dict[int, Skipping]]] = []

    def add(self, table: pa.Table) -> None:
        """Examine the next rows of the file."""
        found: dict[int, Skipping] = {}
        for index, first_leaf in self._first_leaves.items():
            for chunk in table.column(index).chunks:
                for leaf, values in enumerate(leaf_arrays(chunk), first_leaf):
                    if is_float(values.type):
                        found[leaf] = found.get(leaf, Skipping(0)) | self._unusable(leaf, values)
        self._tables.append((table.num_rows, found))

    def unusable(self, row_groups: Sequence[int]) -> dict[tuple[int, int], Skipping]:
        """Return the parts that readers must not use, keyed by the numbers of row group and leaf column.

        `row_groups` lists the number of rows of each row group. The rows of one table may lie in several row groups.
        """
        unusable: dict[tuple[int, int], Skipping] = {}
        ends = list(accumulate(rows for rows, _ in self._tables))
        for group, (start, end) in enumerate(pairwise(accumulate(row_groups, initial=0))):
            for _, found in self._tables[bisect_right(ends, start) : bisect_left(ends, end) + 1]:
                for leaf, parts in found.items():
                    unusable[group, leaf] = unusable.get((group, leaf), Skipping(0)) | parts
        return {chunk: parts for chunk, parts in unusable.items() if parts}

    def _unusable(self, leaf: int, values: pa.Array) -> Skipping:
        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary
        if pa.types.is_float16(values.type):
            # `sum` and `equal` do not support float16.
            values = values.cast(pa.float32())
        nan = _NAN if _has_nan(values) else Skipping(0)
        return nan | _ZERO if leaf in self._matched_by_bits and _has_zero(values) else nan


def is_float(data_type: pa.DataType) -> bool:
    """Return whether the values of a leaf are floats of any width."""
    if pa.types.is_dictionary(data_type):
        return is_float(data_type.value_type)
    return bool(pa.types.is_floating(data_type))


def _has_nan(values: pa.Array) -> bool:
    # A sum is the fastest check. The sum is NaN if any value is NaN, and also if the values contain both infinities.
    total = pc.sum(values).as_py()
    return total is not None and total != total and bool(pc.any(pc.is_nan(values)).as_py())


def _has_zero(values: pa.Array) -> bool:
    return bool(pc.any(pc.equal(values, pa.scalar(0, values.type))).as_py())
