# SPDX-License-Identifier: Apache-2.0
"""Limits on the encoder options of clients: some options cost memory, and some values make no sense."""

import math

from updraft.errors import EncodeError, WriteOptionError
from updraft.v1.write_pb2 import OrcOptions, ParquetOptions, WriteCommand

DEFAULT_BLOOM_DISTINCT_VALUES = 1_000_000
DEFAULT_BLOOM_FALSE_POSITIVES = 0.01
DEFAULT_ROW_INDEX_STRIDE = 10_000
DEFAULT_ORC_FALSE_POSITIVES = 0.01
# Parquet stores the size of a page in 32 bits.
_MAX_PAGE_BYTES = (1 << 31) - 1
# The library stores the number of distinct values in 32 bits.
_MAX_DISTINCT_VALUES = (1 << 31) - 1
_MIN_FALSE_POSITIVES = 1e-6
# The library's own size limits for one filter.
_FEWEST_BLOOM_BYTES, _MOST_BLOOM_BYTES = 32, 128 << 20
_MAX_BLOOM_BYTES = 256 << 20
# Limit on the bytes of column paths in a footer, which repeats the path of each column in each row group.
_MAX_FOOTER_NAMES_BYTES = 64 << 20
_MAX_ROW_INDEX_STRIDE = (1 << 31) - 1
# Minimum of ORC for Java. The index contains an entry for each stride, and the index stays in memory until the stripe
# ends.
_MIN_ROW_INDEX_STRIDE = 1000


def check_parquet(options: ParquetOptions) -> None:
    """Raise WriteOptionError, which names the option and its limit, if an option of a Parquet file is out of bounds."""
    if options.page_bytes > _MAX_PAGE_BYTES:
        raise WriteOptionError(f"page_bytes is {options.page_bytes}, the limit is {_MAX_PAGE_BYTES}: ask for less")
    for bloom in options.bloom_filters:
        where = f"of the bloom filter over {bloom.column!r}"
        if bloom.distinct_values > _MAX_DISTINCT_VALUES:
            raise WriteOptionError(
                f"distinct_values {where} is {bloom.distinct_values}, the limit is {_MAX_DISTINCT_VALUES}: "
                "expect fewer distinct values in a row group"
            )
        _check_false_positives(bloom.false_positive_probability, f"false_positive_probability {where}")
    if bloom_bytes(options) > _MAX_BLOOM_BYTES:
        raise WriteOptionError(
            f"bloom_filters: the filters of each row group take {bloom_bytes(options)} bytes, the limit is "
            f"{_MAX_BLOOM_BYTES}: ask for fewer filters, fewer distinct values or more false positives"
        )


def check_orc(options: OrcOptions) -> None:
    """Raise WriteOptionError, which names the option and its limit, if an option of an ORC file is out of bounds."""
    if options.row_index_stride > _MAX_ROW_INDEX_STRIDE:
        raise WriteOptionError(
            f"row_index_stride is {options.row_index_stride}, the limit is {_MAX_ROW_INDEX_STRIDE}: ask for less"
        )
    if 0 < options.row_index_stride < _MIN_ROW_INDEX_STRIDE:
        raise WriteOptionError(
            f"row_index_stride is {options.row_index_stride}, the minimum is {_MIN_ROW_INDEX_STRIDE}: ask for more"
        )
    _check_false_positives(options.bloom_filter_false_positive_probability, "bloom_filter_false_positive_probability")
    if orc_bloom_bytes(options) > _MAX_BLOOM_BYTES:
        raise WriteOptionError(
            f"bloom_filter_columns: the filters of each stride take {orc_bloom_bytes(options)} bytes, the limit is "
            f"{_MAX_BLOOM_BYTES}: ask for fewer filters, a shorter row_index_stride or more false positives"
        )


def check_footer_names(row_groups: int, names_bytes: int) -> None:
    """Raise EncodeError if the column names, repeated for each row group, exceed the bytes that a footer may have."""
    if row_groups * names_bytes > _MAX_FOOTER_NAMES_BYTES:
        raise EncodeError(
            f"the names of the columns take {names_bytes} bytes in each of {row_groups} row groups, the limit of a "
            f"footer is {_MAX_FOOTER_NAMES_BYTES}: send shorter names, or ask for larger row groups"
        )


def bloom_bytes(options: ParquetOptions) -> int:
    """Return the memory of one row group's bloom filters; the library keeps these filters until the file ends."""
    return sum(
        _filter_bytes(
            bloom.distinct_values or DEFAULT_BLOOM_DISTINCT_VALUES,
            bloom.false_positive_probability or DEFAULT_BLOOM_FALSE_POSITIVES,
        )
        for bloom in options.bloom_filters
    )


def filters_from_start_bytes(command: WriteCommand) -> int:
    """Return the memory of the bloom filters that are allocated when a file is opened; raises WriteOptionError."""
    check_orc(command.orc)
    return orc_bloom_bytes(command.orc) if command.HasField("orc") else 0


def filters_of_row_group_bytes(command: WriteCommand) -> int:
    """Return the memory of bloom filters that each row group adds until the file ends; raises WriteOptionError."""
    check_parquet(command.parquet)
    return bloom_bytes(command.parquet)


def orc_bloom_bytes(options: OrcOptions) -> int:
    """Return the memory of the bloom filters of one stride, which the library allocates when the file is opened."""
    values = options.row_index_stride or DEFAULT_ROW_INDEX_STRIDE
    false_positives = options.bloom_filter_false_positive_probability or DEFAULT_ORC_FALSE_POSITIVES
    # The library uses the same formula: the optimal number of bits for one value in each row, rounded up to whole
    # words.
    bits = -values * math.log(false_positives) / math.log(2) ** 2
    # A column that is named twice has one filter.
    return len(set(options.bloom_filter_columns)) * (math.ceil(bits / 64) * 8)


def _filter_bytes(distinct_values: int, false_positives: float) -> int:
    """Return the size of a split-block filter by the formula of Parquet's specification: a power of two."""
    bits = -8 * distinct_values / math.log(1 - false_positives ** (1 / 8))
    size = 1 << math.ceil(math.log2(max(1.0, bits / 8)))
    return min(_MOST_BLOOM_BYTES, max(_FEWEST_BLOOM_BYTES, size))


def _check_false_positives(asked: float, option: str) -> None:
    # Zero means the default. The check refuses NaN, because every comparison with NaN is false.
    if asked != 0 and not _MIN_FALSE_POSITIVES <= asked < 1:
        raise WriteOptionError(f"{option} is {asked:g}: it must be at least {_MIN_FALSE_POSITIVES:g} and less than 1")
