# SPDX-License-Identifier: Apache-2.0
import math
from typing import Any

import pyarrow as pa
import pytest

from updraft.errors import WriteOptionError
from updraft.v1.write_pb2 import BloomFilter, OrcOptions, ParquetOptions
from updraft_writer.encoders.orc import OrcEncoder
from updraft_writer.encoders.parquet import ParquetEncoder

SCHEMA = pa.schema({"n": pa.int64()})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"page_bytes": 1 << 63}, "page_bytes is 9223372036854775808, the limit is 2147483647"),
        ({"bloom_filters": [BloomFilter(column="n", distinct_values=1 << 31)]}, "distinct_values of the bloom filter"),
        *(
            ({"bloom_filters": [BloomFilter(column="n", false_positive_probability=odd)]}, "false_positive_probab")
            for odd in (-0.1, 1.0, math.inf, math.nan, 1e-300)
        ),
        (
            {"bloom_filters": [BloomFilter(column="n", distinct_values=(1 << 31) - 1)] * 3},
            "bloom_filters: the filters of each row group take 402653184 bytes, the limit is 268435456",
        ),
    ],
)
def test_an_option_of_parquet_out_of_bounds_is_named_with_its_limit(options: dict[str, Any], says: str) -> None:
    with pytest.raises(WriteOptionError, match=says):
        ParquetEncoder(SCHEMA, ParquetOptions(**options), {})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"row_index_stride": 1 << 63}, "row_index_stride is 9223372036854775808, the limit is 2147483647"),
        (
            {"row_index_stride": (1 << 31) - 1, "bloom_filter_columns": ["n"]},
            "bloom_filter_columns: the filters of each stride take 2572",
        ),
        ({"row_index_stride": 1}, "row_index_stride is 1, the minimum is 1000: ask for more"),
        *(
            ({"bloom_filter_false_positive_probability": odd}, "bloom_filter_false_positive_probability is")
            for odd in (-0.1, 1.0, math.inf, math.nan)
        ),
    ],
)
def test_an_option_of_orc_out_of_bounds_is_named_with_its_limit(options: dict[str, Any], says: str) -> None:
    with pytest.raises(WriteOptionError, match=says):
        OrcEncoder(SCHEMA, OrcOptions(**options), {}, max_stripe_bytes=1 << 20)


def test_bloom_filters_count_as_memory_of_the_open_file() -> None:
    bloom_filters = [BloomFilter(column="n", distinct_values=1_000_000)]
    encoder = ParquetEncoder(SCHEMA, ParquetOptions(bloom_filters=bloom_filters), {})
    for row_groups in (1, 2, 3):
        encoder.write(pa.table({"n": [1]}))
        assert encoder.retained_bytes >= row_groups << 21
