# SPDX-License-Identifier: Apache-2.0
"""Which columns a codec makes smaller, judged by a few rows that are encoded on trial.

What is encoded already, as differences or by a dictionary, often has nothing left to be squeezed out, nor have hashes
and measures; a codec would take its time over them and every reader's as well.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from updraft_writer.encoders.encoder import EncodedBytes

_TRIAL_ROWS = 4096
# Of fewer rows a trial costs more than it can spare.
_LEAST_ROWS = 8 * _TRIAL_ROWS
# What a codec has to leave of a column's pages at most.
_WORTHWHILE_FRACTION = 0.9


def worthwhile_codecs(table: pa.Table, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What to change of `arguments`, with which `pq.ParquetWriter` is to write `table`: some columns have no codec."""
    codec, level = arguments["compression"], arguments["compression_level"]
    if codec == "none" or table.num_rows < _LEAST_ROWS:
        return {}
    rows = table.slice((table.num_rows - _TRIAL_ROWS) // 2, _TRIAL_ROWS)
    bare = {**arguments, "write_statistics": False, "write_page_index": False, "bloom_filter_options": None}
    packed_bytes = _page_bytes(rows, bare)
    plain_bytes = _page_bytes(rows, {**bare, "compression": "none", "compression_level": None})
    packed = [path for path in plain_bytes if packed_bytes[path] <= _WORTHWHILE_FRACTION * plain_bytes[path]]
    # A column that is not named has no codec.
    return {
        "compression": dict.fromkeys(packed, codec),
        "compression_level": None if level is None else dict.fromkeys(packed, level),
    }


def _page_bytes(rows: pa.Table, arguments: Mapping[str, Any]) -> dict[str, int]:
    """Bytes of the data pages of each leaf; of all rows the dictionaries would be a much smaller part."""
    collected: list[Any] = []
    with pq.ParquetWriter(EncodedBytes(), rows.schema, metadata_collector=collected, **arguments) as writer:
        writer.write_table(rows)
    row_group = collected[0].row_group(0)
    columns = [row_group.column(index) for index in range(row_group.num_columns)]
    return {column.path_in_schema: _without_dictionary(column) for column in columns}


def _without_dictionary(column: Any) -> int:
    dictionary_bytes = column.data_page_offset - column.dictionary_page_offset if column.has_dictionary_page else 0
    return int(column.total_compressed_size - dictionary_bytes)
