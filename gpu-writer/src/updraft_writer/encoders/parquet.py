# SPDX-License-Identifier: Apache-2.0
"""Parquet on the CPU with pyarrow, in the layout of Spark's own files."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from updraft.arrow_bytes import data_bytes
from updraft.errors import EncodeError, WriteOptionError
from updraft.v1.write_pb2 import Dictionaries, Encodings, ParquetOptions
from updraft_writer.encoders.codecs import codec_name, compression_level
from updraft_writer.encoders.column_codecs import worthwhile_codecs
from updraft_writer.encoders.column_encodings import ColumnEncodings, repeated, sampled_encodings
from updraft_writer.encoders.column_statistics import column_statistics
from updraft_writer.encoders.encoder import EncodedBytes, Footer
from updraft_writer.encoders.float_values import FloatValues, is_float
from updraft_writer.encoders.leaves import is_text, schema_leaves
from updraft_writer.encoders.option_limits import (
    DEFAULT_BLOOM_DISTINCT_VALUES,
    DEFAULT_BLOOM_FALSE_POSITIVES,
    bloom_bytes,
    check_footer_names,
    check_parquet,
)
from updraft_writer.encoders.parquet_footer import Skipping, with_edited_footer
from updraft_writer.encoders.timestamps import ParquetTimes, is_instant
from updraft_writer.pieces import Blocks, Piece
from updraft_writer.reason import Reason

# Share of a row group that an open writer retains if a sample decides which columns get a dictionary. If every column
# has a dictionary, the writer retains the whole row group.
_RETAINED_FRACTION = 1 / 8
# Parquet's own default, for clients that name no size. Spark and the Python client name a size if readers depend on it.
DEFAULT_ROW_GROUP_BYTES = 128 * 1024 * 1024
_DEFAULT_PAGE_BYTES = 1024 * 1024
# Limits on the number of values that the library encodes between two checks of a page's size. Within these limits,
# choose a number that fills half a page, so that a page exceeds its size limit by at most half. If the values are
# small, fewer checks save time.
_MOST_VALUES, _FEWEST_VALUES = 20_000, 16
_LOOKS_PER_PAGE = 2


class ParquetEncoder:
    """Encoder of one Parquet file. The writer is opened with the first row group, which decides the dictionaries."""

    name = "pyarrow-parquet"
    on_gpu = False
    reason: Reason

    def __init__(
        self, schema: pa.Schema, options: ParquetOptions, footer: Mapping[str, str], blocks: Blocks | None = None
    ) -> None:
        """Check everything that can be checked without data; raises WriteOptionError."""
        check_parquet(options)
        self._options = options
        self._is_compact = options.encodings == Encodings.ENCODINGS_COMPACT
        self._times = ParquetTimes.asked_for(options)
        self._key_values = {**footer, **self._times.footer}
        self._unnamed_wall_clocks = self._times.unnamed_wall_clocks(schema)
        self._schema = self._times.stored_schema(schema)
        self._arguments = self._writer_arguments()
        self._paths = self._leaf_paths()
        self._check_bloom_filters()
        self._names_bytes = sum(len(path.encode()) for path in self._paths)
        # Bytes that the library keeps for each row group until the file ends.
        self._kept_bytes_per_row_group = bloom_bytes(options) + self._names_bytes
        self._row_groups = 0
        self._output = EncodedBytes(blocks)
        self._metadata: list[Any] = []
        self._writer: pq.ParquetWriter | None = None
        self._encodings = ColumnEncodings()
        self._floats = FloatValues(self._schema, matched_by_bits=())
        self._last_row_group_bytes = 0

    @property
    def retained_bytes(self) -> int:
        """Bytes retained between row groups."""
        always = self._options.dictionaries == Dictionaries.DICTIONARIES_ALWAYS
        kept_bytes = self._row_groups * self._kept_bytes_per_row_group
        return int(self._last_row_group_bytes * (1 if always else _RETAINED_FRACTION)) + kept_bytes

    @property
    def footer(self) -> Footer:
        """Facts from the footer, once the file is closed."""
        [metadata] = self._metadata
        columns = column_statistics(metadata, self._unusable(metadata), rebased=self._times.rebases_dates)
        return Footer(metadata.num_row_groups, metadata.num_rows, self._encodings.dictionaries, columns)

    def write(self, table: pa.Table) -> list[Piece]:
        """Encode a row group; raises EncodeError."""
        self._last_row_group_bytes = data_bytes(table)
        self._row_groups += 1
        check_footer_names(self._row_groups, self._names_bytes)
        try:
            table = self._times.stored_table(table, self._schema)
            self._opened(table).write_table(table, row_group_size=max(1, table.num_rows))
            self._floats.add(table)
        except pa.ArrowException as error:
            self._give_up()
            raise EncodeError(f"a row group cannot be encoded as Parquet: {error}") from error
        return self._output.take()

    def close(self) -> list[Piece]:
        """Write the footer; raises EncodeError."""
        try:
            writer = self._opened(pa.Table.from_batches([], self._schema))
            if self._key_values:
                writer.add_key_value_metadata(self._key_values)
            writer.close()
        except pa.ArrowException as error:
            raise EncodeError(f"the footer cannot be written: {error}") from error
        [metadata] = self._metadata
        return with_edited_footer(
            self._output.take(), wall_clocks=self._unnamed_wall_clocks, unusable=self._unusable(metadata)
        )

    def _unusable(self, metadata: Any) -> dict[tuple[int, int], Skipping]:
        return self._floats.unusable([metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)])

    def _give_up(self) -> None:
        """Close a failed writer now. Otherwise its finalizer closes it later, where no caller can catch the error."""
        if self._writer is not None:
            with suppress(pa.ArrowException, RuntimeError):
                self._writer.close()

    def _opened(self, table: pa.Table) -> pq.ParquetWriter:
        if self._writer is None:
            self._choose_arguments(table)
            self._floats = FloatValues(self._schema, matched_by_bits=self._leaves_matched_by_bits())
            self._writer = pq.ParquetWriter(
                self._output, self._schema, metadata_collector=self._metadata, **self._arguments
            )
        return self._writer

    def delta_encodings(self, stored: pa.Table) -> Mapping[str, str]:
        """Return the paths of the leaf columns to store with a delta encoding, and each encoding's name.

        The encodings suit a file whose first row group is `stored`, with dates and times in their stored form. This
        encoder must not write the file afterwards.
        """
        if self._is_compact:
            self._choose_arguments(stored)
        return dict(self._arguments.get("column_encoding", {}))

    def _choose_arguments(self, table: pa.Table) -> None:
        self._encodings = self._choose_encodings(table)
        self._arguments |= {
            "use_dictionary": list(self._encodings.dictionaries),
            "column_encoding": dict.fromkeys(self._encodings.differences, "DELTA_BINARY_PACKED"),
            "write_batch_size": _values_between_looks(table, self._options.page_bytes),
        }
        self._arguments |= worthwhile_codecs(table, self._arguments, self._plain_texts() if self._is_compact else ())

    def _choose_encodings(self, table: pa.Table) -> ColumnEncodings:
        match self._options.dictionaries:
            case Dictionaries.DICTIONARIES_ALWAYS:
                return ColumnEncodings(dictionaries=tuple(self._paths))
            case Dictionaries.DICTIONARIES_NEVER:
                return ColumnEncodings()
            case _:
                barred = self._stored_as_bytes() if self._is_compact else self._paths
                return sampled_encodings(table, self._paths, without_differences=barred)

    def _leaves_matched_by_bits(self) -> set[int]:
        """Return the numbers of the leaf columns with a dictionary or a bloom filter."""
        paths = {*self._encodings.dictionaries, *(bloom.column for bloom in self._options.bloom_filters)}
        return {leaf for leaf, path in enumerate(self._paths) if path in paths}

    def _plain_texts(self) -> list[str]:
        """Return the paths of the string and binary leaves without a dictionary."""
        texts = [path for path, leaf in zip(self._paths, schema_leaves(self._schema), strict=True) if is_text(leaf)]
        ambiguous = repeated(self._paths)
        return [path for path in texts if path not in self._encodings.dictionaries and path not in ambiguous]

    def _stored_as_bytes(self) -> set[str]:
        """Return the paths of the leaves that are integers in Arrow but stored as bytes: INT96 and legacy decimals."""
        int96, legacy = self._times.has_int96(self._schema), self._options.legacy_decimals
        return {
            path
            for path, leaf in zip(self._paths, schema_leaves(self._schema), strict=True)
            if (int96 and is_instant(leaf)) or (legacy and pa.types.is_decimal(leaf))
        }

    def _writer_arguments(self) -> dict[str, Any]:
        options = self._options
        bloom_filters = {
            bloom.column: {
                "ndv": bloom.distinct_values or DEFAULT_BLOOM_DISTINCT_VALUES,
                "fpp": bloom.false_positive_probability or DEFAULT_BLOOM_FALSE_POSITIVES,
            }
            for bloom in options.bloom_filters
        }
        return {
            "compression": codec_name(options.compression),
            "compression_level": compression_level(options.compression),
            "write_statistics": options.statistics if options.HasField("statistics") else True,
            # Without a page index, the library stores bounds in the page headers, from which this module cannot remove
            # them.
            "write_page_index": options.page_index or any(map(is_float, schema_leaves(self._schema))),
            "write_page_checksum": options.page_checksums,
            "bloom_filter_options": bloom_filters or None,
            "data_page_size": options.page_bytes or None,
            "use_deprecated_int96_timestamps": self._times.has_int96(self._schema),
            "store_decimal_as_integer": not options.legacy_decimals,
            "data_page_version": "1.0",
            # Spark reads its own schema from a footer key, so Arrow's schema would be redundant.
            "store_schema": False,
        }

    def _leaf_paths(self) -> list[str]:
        """Return the paths of all leaf columns, read from an empty file.

        Raises WriteOptionError if Parquet does not support the schema, because then the empty file cannot be written.
        """
        try:
            arguments = {**self._arguments, "bloom_filter_options": None}
            metadata: list[Any] = []
            pq.ParquetWriter(EncodedBytes(), self._schema, metadata_collector=metadata, **arguments).close()
        except (pa.ArrowException, ValueError, TypeError, OSError) as error:
            raise WriteOptionError(f"the file cannot be written as Parquet: {error}") from error
        columns = metadata[0].schema
        return [columns.column(index).path for index in range(len(columns))]

    def _check_bloom_filters(self) -> None:
        for bloom in self._options.bloom_filters:
            if bloom.column not in self._paths:
                raise WriteOptionError(f"bloom filter over {bloom.column!r}: the columns are {', '.join(self._paths)}")


def _values_between_looks(table: pa.Table, page_bytes: int) -> int:
    row_bytes = max((data_bytes(table.select([index])) for index in range(table.num_columns)), default=0)
    bytes_per_value = max(1.0, row_bytes / max(1, table.num_rows))
    values = (page_bytes or _DEFAULT_PAGE_BYTES) / _LOOKS_PER_PAGE / bytes_per_value
    return int(min(_MOST_VALUES, max(_FEWEST_VALUES, values)))
