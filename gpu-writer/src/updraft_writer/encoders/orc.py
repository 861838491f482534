# SPDX-License-Identifier: Apache-2.0
"""ORC on the CPU with pyarrow, in Spark's layout. `orc_times` converts dates and times."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import orc

from updraft.arrow_bytes import data_bytes
from updraft.errors import EncodeError, WriteOptionError
from updraft.service.allocator import clean_freed_memory
from updraft.v1.write_pb2 import OrcOptions
from updraft_writer.encoders.codecs import codec_name, compression_level
from updraft_writer.encoders.encoder import EncodedBytes, Footer
from updraft_writer.encoders.float_values import is_float
from updraft_writer.encoders.leaves import schema_leaves
from updraft_writer.encoders.option_limits import (
    DEFAULT_ORC_FALSE_POSITIVES,
    DEFAULT_ROW_INDEX_STRIDE,
    check_orc,
    orc_bloom_bytes,
)
from updraft_writer.encoders.orc_tail import with_footer_entries
from updraft_writer.encoders.orc_times import stored_schema, stored_table
from updraft_writer.pieces import Blocks, Piece
from updraft_writer.reason import Reason

DEFAULT_STRIPE_BYTES = 64 * 1024 * 1024
_CONVERTED_ROWS = 64 * 1024
# Spark's orc.dictionary.key.threshold.
_DICTIONARY_THRESHOLD = 0.8
# Size of the library's own buffers, which the library allocates before the first row.
_BYTES_PER_FILE = 2 * 1024 * 1024
_BYTES_PER_COLUMN = 512 * 1024
_ORC_NAMES = {"none": "uncompressed", "gzip": "zlib"}


class OrcEncoder:
    """Encoder of one ORC file.

    Stripes are independent of row groups: the library ends a stripe when the stripe is large enough.
    """

    name = "pyarrow-orc"
    on_gpu = False
    reason: Reason

    def __init__(
        self,
        schema: pa.Schema,
        options: OrcOptions,
        footer: Mapping[str, str],
        blocks: Blocks | None = None,
        *,
        max_stripe_bytes: int,
    ) -> None:
        """Check everything that can be checked without data; raises WriteOptionError."""
        check_orc(options)
        if compression_level(options.compression) is not None:
            raise WriteOptionError("compression levels are not supported for ORC: leave the level out")
        self._footer_entries = dict(footer)
        self._schema = stored_schema(schema)
        self._bloom_filters = self._bloom_filter_arguments(options)
        self._bloom_bytes = orc_bloom_bytes(options)
        self._stripe_bytes = min(options.stripe_bytes or DEFAULT_STRIPE_BYTES, max_stripe_bytes)
        self._row_index_stride = options.row_index_stride or DEFAULT_ROW_INDEX_STRIDE
        self._codec = codec_name(options.compression)
        self._unstored_bytes = 0
        self._rows = 0
        self._output = EncodedBytes(blocks)
        self._writer = self._opened()

    @property
    def retained_bytes(self) -> int:
        """Bytes retained: the buffers, the bloom filters of a stride, and the partial stripe."""
        columns = sum(1 for _ in schema_leaves(self._schema))
        fixed_bytes = _BYTES_PER_FILE + columns * _BYTES_PER_COLUMN + self._bloom_bytes
        return fixed_bytes + min(self._unstored_bytes, self._stripe_bytes)

    @property
    def footer(self) -> Footer:
        """Facts from the footer, once the file is closed."""
        return Footer(row_groups=0, rows=self._rows)

    def write(self, table: pa.Table) -> list[Piece]:
        """Encode a row group; raises EncodeError."""
        self._unstored_bytes += data_bytes(table)
        self._rows += table.num_rows
        try:
            # Converted rows take memory in addition to the originals, so convert only this many at a time.
            for start in range(0, table.num_rows, _CONVERTED_ROWS):
                rows = table.slice(start, _CONVERTED_ROWS)
                self._writer.write(_without_offsets(stored_table(rows, self._schema)))
        except (pa.ArrowException, OSError) as error:
            raise EncodeError(f"rows cannot be encoded as ORC: {error}") from error
        pieces = self._output.take()
        if pieces:
            # A stripe ended within this table, so the next stripe contains at most the rows of this table.
            self._unstored_bytes = data_bytes(table)
        return pieces

    def close(self) -> list[Piece]:
        """Write the footer; raises EncodeError."""
        try:
            self._writer.close()
        except (pa.ArrowException, OSError) as error:
            raise EncodeError(f"the footer cannot be written: {error}") from error
        return with_footer_entries(self._output.take(), self._footer_entries)

    def _opened(self) -> orc.ORCWriter:
        """Open a writer and have it allocate its buffers; raises WriteOptionError."""
        # The library allocates 1 MiB for each stream of each column and fills little of it. If these allocations reused
        # pages of earlier batches, all the pages would stay resident until the file is closed.
        clean_freed_memory()
        try:
            writer = orc.ORCWriter(
                self._output,
                stripe_size=self._stripe_bytes,
                compression=_ORC_NAMES.get(self._codec, self._codec),
                row_index_stride=self._row_index_stride,
                dictionary_key_size_threshold=_DICTIONARY_THRESHOLD,
                **self._bloom_filters,
            )
            # Writing an empty table fails if ORC does not support a type, and makes the library allocate its buffers.
            writer.write(pa.Table.from_batches([], self._schema))
            return writer
        except (pa.ArrowException, OSError) as error:
            raise WriteOptionError(f"the file cannot be written as ORC: {error}") from error

    def _bloom_filter_arguments(self, options: OrcOptions) -> dict[str, Any]:
        names = self._schema.names
        for column in options.bloom_filter_columns:
            if column not in names:
                raise WriteOptionError(f"bloom filter over {column!r}: the columns are {', '.join(names)}")
        asked_for = options.bloom_filter_columns
        filtered = [name for name in asked_for if _is_hashed_alike(self._schema.field(names.index(name)))]
        if not filtered:
            return {}
        return {
            "bloom_filter_columns": [self._column_id(column) for column in filtered],
            "bloom_filter_fpp": options.bloom_filter_false_positive_probability or DEFAULT_ORC_FALSE_POSITIVES,
        }

    def _column_id(self, name: str) -> int:
        """Return the number of a column in ORC, which counts every level of nesting, starting with the row itself."""
        return 1 + sum(_levels(field.type) for field in list(self._schema)[: self._schema.names.index(name)])


def _is_hashed_alike(field: pa.Field) -> bool:
    """Return whether equal values have the same hash in a bloom filter.

    0.0 and -0.0 are equal but have different hashes. The file and the reader use different calendars, so a date before
    1582 has one hash in the file and another hash in the reader.
    """
    return not is_float(field.type) and not pa.types.is_date(field.type)


def _without_offsets(table: pa.Table) -> pa.Table:
    """Copy sliced structs, because the library ignores a slice's offset and reads the first rows of the whole array."""
    for index, column in enumerate(table.columns):
        if pa.types.is_struct(column.type):
            whole = pa.chunked_array([pa.concat_arrays([chunk]) for chunk in column.chunks], column.type)
            table = table.set_column(index, table.schema.field(index), whole)
    return table


def _levels(data_type: pa.DataType) -> int:
    if pa.types.is_map(data_type):
        return 1 + _levels(data_type.key_type) + _levels(data_type.item_type)
    return 1 + sum(_levels(data_type.field(index).type) for index in range(data_type.num_fields))
