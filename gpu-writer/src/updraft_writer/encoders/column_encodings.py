# SPDX-License-Identifier: Apache-2.0
"""Choice of each column's encoding by a sample of the first row group.

Most writers put a dictionary on every column by default. Dictionaries cost about half of the encoder's time and most of
the memory of an open file, but save many bytes only in columns with few distinct values. Integers are encoded fastest
as differences between neighbours (DELTA_BINARY_PACKED). The differences are small if neighbours are close or the column
has few distinct values.
"""

import math
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from updraft_writer.encoders.leaves import leaf_arrays

_SAMPLED_ROWS = 2048
# Differences are sampled in this many runs of neighbouring rows, each as long as a block of the format.
_RUNS = 4
_RUN_ROWS = 129
# Largest dictionary page. Once a column's dictionary exceeds this size, the library stores the column's further values
# plain.
_DICTIONARY_PAGE_BYTES = 1024 * 1024
# An encoding costs time, so its result must be at most this share of the plain size.
_WORTHWHILE_FRACTION = 0.75
# Encoding differences takes half to two thirds of the time that a dictionary takes. So prefer differences if they need
# at most this many times the bytes of the dictionary encoding.
_DIFFERENCES_PER_DICTIONARY = 5 / 4
_LENGTH_PREFIX_BYTES = 4
_LARGEST_INTEGER_DIGITS = 18


@dataclass(frozen=True, slots=True)
class ColumnEncodings:
    """Paths of the leaf columns with a dictionary, and of those stored as differences. All other columns are plain."""

    dictionaries: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


def sampled_encodings(
    table: pa.Table, paths: Sequence[str], *, without_differences: Container[str] = ()
) -> ColumnEncodings:
    """Return the encodings for `table`, whose leaves are `paths`, in order."""
    step = max(1, table.num_rows // _SAMPLED_ROWS)
    spread = _leaves(table.take(pa.arange(0, table.num_rows, step)))
    starts = sorted({round(part * max(0, table.num_rows - _RUN_ROWS) / (_RUNS - 1)) for part in range(_RUNS)})
    runs = zip(*(_leaves(table.slice(start, _RUN_ROWS)) for start in starts), strict=True)
    dictionaries: list[str] = []
    differences: list[str] = []
    ambiguous = repeated(paths)
    for path, sample, neighbours in zip(paths, spread, runs, strict=True):
        width_bits = 8 * _width_bytes(sample)
        by_dictionary = _dictionary_bits(sample, step, width_bits)
        is_barred = path in without_differences or path in ambiguous
        by_difference = math.inf if is_barred else _difference_bits(neighbours)
        worthwhile_bits = _WORTHWHILE_FRACTION * width_bits
        if by_difference <= min(worthwhile_bits, _DIFFERENCES_PER_DICTIONARY * by_dictionary):
            differences.append(path)
        elif by_dictionary <= worthwhile_bits:
            dictionaries.append(path)
    return ColumnEncodings(tuple(dictionaries), tuple(differences))


def repeated(paths: Sequence[str]) -> frozenset[str]:
    """Return the paths that several leaves share.

    The library applies the options of a path to all of its leaves, whatever their types.
    """
    return frozenset(path for path, count in Counter(paths).items() if count > 1)


def _leaves(table: pa.Table) -> list[pa.Array]:
    """Return the values of each leaf, without nulls."""
    return [leaf.drop_null() for column in table.columns for leaf in leaf_arrays(column.combine_chunks())]


def _dictionary_bits(sample: pa.Array, step: int, width_bits: float) -> float:
    """Return the bits per value with a dictionary, including the dictionary; infinite if no dictionary is possible."""
    if not len(sample) or pa.types.is_boolean(sample.type) or pa.types.is_null(sample.type):
        return math.inf
    total = len(sample) * step
    distinct = min(float(total), _estimated_distinct(sample))
    dictionary_bits = distinct * width_bits
    if dictionary_bits > 8 * _DICTIONARY_PAGE_BYTES:
        return math.inf
    return max(1, math.ceil(math.log2(distinct))) + dictionary_bits / total


def _difference_bits(runs: Sequence[pa.Array]) -> float:
    """Return the bits per value if stored as differences; infinite if the file stores no integers for these values."""
    widths = [math.log2(1 + high - low) for low, high in filter(None, map(_range_of_differences, runs))]
    return sum(map(math.ceil, widths)) / len(widths) if widths else math.inf


def _range_of_differences(run: pa.Array) -> tuple[int, int] | None:
    integers = _as_integers(run)
    if integers is None or len(integers) < 2:
        return None
    found = pc.min_max(pc.pairwise_diff(integers.cast(pa.int64()))).as_py()
    return found["min"], found["max"]


def _as_integers(values: pa.Array) -> pa.Array | None:
    """Return the integers that represent these values in the file, or None if the file stores no integers for them."""
    data_type = values.type
    if pa.types.is_signed_integer(data_type):
        return values
    if pa.types.is_date32(data_type) or pa.types.is_time32(data_type):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(data_type) or pa.types.is_time64(data_type) or pa.types.is_duration(data_type):
        return values.cast(pa.int64())
    if pa.types.is_decimal128(data_type) and data_type.precision <= _LARGEST_INTEGER_DIGITS:
        unscaled = pa.decimal128(_LARGEST_INTEGER_DIGITS, 0)
        return pa.Array.from_buffers(unscaled, len(values), values.buffers(), 0, values.offset).cast(pa.int64())
    return None


def _estimated_distinct(values: pa.Array) -> float:
    """Estimate how many distinct values a column has (Chao's estimator).

    The more values occur exactly once in the sample, the more values of the column are missing from the sample.
    """
    counts = pc.value_counts(values).field("counts")
    once, twice = (pc.sum(pc.equal(counts, times)).as_py() for times in (1, 2))
    unseen = once * (once - 1) / (2 * (twice + 1))
    return float(len(counts) + unseen)


def _width_bytes(values: pa.Array) -> float:
    """Return the average size of a plain-encoded value in bytes."""
    if not len(values) or pa.types.is_null(values.type):
        return 0.0
    if pa.types.is_decimal128(values.type) and values.type.precision <= _LARGEST_INTEGER_DIGITS:
        return 4.0 if values.type.precision <= 9 else 8.0
    try:
        return max(4.0, float(values.type.bit_width) / 8)
    except ValueError:
        lengths = pc.sum(pc.binary_length(values)).as_py() or 0
        return _LENGTH_PREFIX_BYTES + float(lengths) / len(values)
