# SPDX-License-Identifier: Apache-2.0
"""Choice of the columns to compress and of the strings to write as DELTA_BYTE_ARRAY, by a trial on a few rows.

A codec costs time in the writer and in every reader. A codec saves little on columns with dictionaries or
DELTA_BINARY_PACKED, and on hashes and measurements. If neighbouring strings share prefixes, Snappy saves hardly more
bytes than DELTA_BYTE_ARRAY and takes longer. zstd and gzip, which clients choose for small files, compress the output
of DELTA_BYTE_ARRAY better than the strings, and take no longer.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from updraft_writer.encoders.encoder import EncodedBytes

_TRIAL_ROWS = 2048
# With fewer rows, a trial costs more than it can save.
_LEAST_ROWS = 16 * _TRIAL_ROWS
# Use a codec for a column only if it shrinks the pages to this share or less.
_WORTHWHILE_FRACTION = 0.9
# DELTA_BYTE_ARRAY costs time in writing and reading. Use it for a column only if it shrinks the pages to this share or
# less.
_WORTHWHILE_FRONT_FRACTION = 0.75
# Snappy takes longer than DELTA_BYTE_ARRAY, so prefer DELTA_BYTE_ARRAY if its result is at most this many times as
# large as Snappy's.
_FRONTS_PER_SNAPPY = 5 / 4
# Clients choose these codecs for small files. With these codecs, the output of DELTA_BYTE_ARRAY is compressed too.
_CODECS_OF_FRONTS = ("zstd", "gzip")


def worthwhile_codecs(table: pa.Table, arguments: Mapping[str, Any], texts: Sequence[str]) -> dict[str, Any]:
    """Return changes to `arguments`, the arguments of the `pq.ParquetWriter` for `table`.

    The changes switch off the codec of some columns, and encode some string columns as DELTA_BYTE_ARRAY. `texts` lists
    the paths of the string columns without a dictionary.
    """
    if table.num_rows < _LEAST_ROWS:
        return {}
    trial = _Trial(table.slice((table.num_rows - _TRIAL_ROWS) // 2, _TRIAL_ROWS), arguments)
    codec, level = arguments["compression"], arguments["compression_level"]
    by_codec = {"compression": codec, "compression_level": level}
    plain_bytes = trial.page_bytes()
    packed_bytes = trial.page_bytes(**by_codec) if codec != "none" else plain_bytes
    packed = {path for path in plain_bytes if packed_bytes[path] <= _WORTHWHILE_FRACTION * plain_bytes[path]}
    encodings = dict(arguments["column_encoding"])
    for path, left_bytes, front_bytes in _fronts(trial, texts, by_codec):
        worthwhile = front_bytes <= _WORTHWHILE_FRONT_FRACTION * plain_bytes[path]
        if worthwhile and left_bytes <= (_FRONTS_PER_SNAPPY if codec == "snappy" else 1) * packed_bytes[path]:
            encodings[path] = "DELTA_BYTE_ARRAY"
            packed = packed | {path} if left_bytes <= _WORTHWHILE_FRACTION * front_bytes else packed - {path}
    # The library compresses only the columns in this mapping.
    return {
        "column_encoding": encodings,
        "compression": dict.fromkeys(packed, codec),
        "compression_level": None if level is None else dict.fromkeys(packed, level),
    }


def _fronts(trial: "_Trial", texts: Sequence[str], by_codec: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Yield each string column with two sizes as DELTA_BYTE_ARRAY: with the codec, if that was tried, and without."""
    if texts:
        trial = trial.of(texts)
        encoding = {"column_encoding": dict.fromkeys(texts, "DELTA_BYTE_ARRAY")}
        front_bytes = trial.page_bytes(**encoding)
        squeezes = by_codec["compression"] in _CODECS_OF_FRONTS
        left_bytes = trial.page_bytes(**encoding, **by_codec) if squeezes else front_bytes
        yield from ((path, left_bytes[path], front_bytes[path]) for path in texts)


class _Trial:
    """Sample rows, which are encoded in different ways."""

    def __init__(self, rows: pa.Table, arguments: Mapping[str, Any]) -> None:
        self._rows = rows
        self._arguments = {
            **arguments,
            "compression": "none",
            "compression_level": None,
            "write_statistics": False,
            "write_page_index": False,
            "bloom_filter_options": None,
        }

    def of(self, paths: Sequence[str]) -> "_Trial":
        """Return a trial of the same rows that contains only the columns of these leaves."""
        names = enumerate(self._rows.column_names)
        held = [index for index, name in names if any(f"{path}.".startswith(f"{name}.") for path in paths)]
        return _Trial(self._rows.select(held), self._arguments)

    def page_bytes(self, **changes: Any) -> dict[str, int]:
        """Return the size of each leaf's data pages.

        The size excludes dictionaries: a dictionary's share of the bytes is far larger in a sample than in all rows.
        """
        collected: list[Any] = []
        arguments = self._arguments | changes
        with pq.ParquetWriter(EncodedBytes(), self._rows.schema, metadata_collector=collected, **arguments) as writer:
            writer.write_table(self._rows)
        row_group = collected[0].row_group(0)
        columns = [row_group.column(index) for index in range(row_group.num_columns)]
        return {column.path_in_schema: _without_dictionary(column) for column in columns}


def _without_dictionary(column: Any) -> int:
    dictionary_bytes = column.data_page_offset - column.dictionary_page_offset if column.has_dictionary_page else 0
    return int(column.total_compressed_size - dictionary_bytes)
