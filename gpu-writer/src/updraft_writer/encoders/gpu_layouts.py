# SPDX-License-Identifier: Apache-2.0
"""Layouts of files that a GPU can write, in both formats: columns, options, and the footer that Spark expects.

The same code as on the CPU converts dates and times to their stored form, before the device receives the values. Before
any data arrives, a layout refuses everything that the device's library cannot write, with a reason for the receipt. The
CPU encoders can write everything that a layout refuses.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from updraft.v1.write_pb2 import Codec, Compression, Dictionaries, OrcOptions, ParquetOptions
from updraft_writer.encoders.codecs import codec_name
from updraft_writer.encoders.column_statistics import column_statistics
from updraft_writer.encoders.encoder import Footer
from updraft_writer.encoders.float_values import FloatValues, is_float
from updraft_writer.encoders.gpu_columns import device_columns, device_table, has_binary, has_flags
from updraft_writer.encoders.leaves import schema_leaves
from updraft_writer.encoders.option_limits import DEFAULT_ROW_INDEX_STRIDE
from updraft_writer.encoders.orc import DEFAULT_STRIPE_BYTES
from updraft_writer.encoders.orc_tail import with_footer_entries
from updraft_writer.encoders.orc_times import stored_schema, stored_table
from updraft_writer.encoders.parquet import DEFAULT_ROW_GROUP_BYTES
from updraft_writer.encoders.parquet_footer import with_edited_footer, with_whole_footer
from updraft_writer.encoders.timestamps import ParquetTimes, is_wall_clock
from updraft_writer.gpu.engine import DictionaryPolicy, OrcPlan, ParquetPlan, Statistics
from updraft_writer.pieces import Piece
from updraft_writer.reason import NotOnGpuError, ReasonKind

_PAGE_BYTES = range(1024, 1 << 31)
# The library cuts joined row groups again. Do not join row groups with a smaller target, because the library might then
# cut so many row groups that Parquet cannot number them.
_SMALLEST_JOINED_BYTES = 16 << 20
# Largest usual batch. A row group may exceed its target by one batch, and the library must not cut such a row group.
_LARGEST_USUAL_BATCH_BYTES = 8 << 20
_DICTIONARIES = {
    Dictionaries.DICTIONARIES_ALWAYS: DictionaryPolicy.ALWAYS,
    Dictionaries.DICTIONARIES_NEVER: DictionaryPolicy.NEVER,
}
# Levels that Spark sends by default. The layout treats these levels as if the client had named no level.
_SPARK_LEVELS = {Codec.CODEC_ZSTD: 3, Codec.CODEC_GZIP: 6}
# Shortest stride that the library accepts, and the number to a multiple of which the library rounds strides down.
_SHORTEST_STRIDE, _STRIDE_STEP = 512, 8


class ParquetLayout:
    """Layout of a Parquet file."""

    format = "parquet"

    def __init__(
        self,
        schema: pa.Schema,
        options: ParquetOptions,
        footer: Mapping[str, str],
        choose_encodings: Callable[[pa.Table], Mapping[str, str]] = lambda _stored: {},
    ) -> None:
        """Raise NotOnGpuError if the GPU cannot write the file, or WriteOptionError if the CPU cannot either.

        `choose_encodings` chooses the delta encodings of leaf columns from the first row group.
        """
        _refuse_options(
            {
                f"the compression level {options.compression.level}": _asks_for_a_level(options.compression),
                "bloom filters": bool(options.bloom_filters),
                "decimals of Parquet's legacy format": options.legacy_decimals,
                "a page index without statistics": options.page_index and not _has_statistics(options),
                f"pages of {options.page_bytes} bytes": bool(options.page_bytes)
                and options.page_bytes not in _PAGE_BYTES,
            }
        )
        self._choose_encodings = choose_encodings
        self._is_begun = False
        self.has_page_checksums = options.page_checksums
        # The library marks every timestamp as UTC; the footer is corrected for timestamps without a zone.
        self._times = replace(ParquetTimes.asked_for(options), names_wall_clocks=False)
        self._wall_clocks = self._times.unnamed_wall_clocks(schema)
        self._schema = self._times.stored_schema(schema)
        # The library chooses the columns with a dictionary, so any leaf may have a dictionary.
        self._floats = FloatValues(self._schema, matched_by_bits=range(sum(1 for _ in schema_leaves(self._schema))))
        self.plan = ParquetPlan(
            columns=device_columns(self._schema, int96=self._times.uses_int96),
            codec=codec_name(options.compression),
            statistics=_statistics(options),
            dictionaries=_DICTIONARIES.get(options.dictionaries, DictionaryPolicy.WHERE_SMALLER),
            page_bytes=int(options.page_bytes) or None,
            row_group_bytes=_cut_bytes(options),
            key_values={**footer, **self._times.footer},
        )

    @property
    def joins(self) -> bool:
        """Whether several row groups may be written in one step."""
        return self.plan.row_group_bytes is not None

    def device_table(self, table: pa.Table) -> pa.Table:
        """Convert the next rows for the device; raises EncodeError."""
        self._floats.add(table)
        stored = self._times.stored_table(table, self._schema)
        if not self._is_begun:
            self._is_begun = True
            self.plan = replace(self.plan, encodings=self._encodings(stored))
        return device_table(stored, self.plan.columns)

    def _encodings(self, stored: pa.Table) -> Mapping[str, str]:
        """Return the delta encodings of the columns without children. The library chooses all other encodings."""
        plain = {column.name for column in self.plan.columns if not column.children}
        return {path: encoding for path, encoding in self._choose_encodings(stored).items() if path in plain}

    def finished(self, pieces: list[Piece], *, rows: int) -> tuple[list[Piece], Footer]:
        """Return the last pieces of the file, edited for Spark, and the facts from their footer."""
        before, end = with_whole_footer(pieces)
        pieces = [*before, end]
        metadata = pq.read_metadata(pa.BufferReader(end))
        row_groups = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
        unusable = self._floats.unusable(row_groups)
        pieces = with_edited_footer(pieces, wall_clocks=self._wall_clocks, unusable=unusable)
        first = metadata.row_group(0)
        chunks = (first.column(index) for index in range(metadata.num_columns))
        dictionaries = tuple(chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page)
        columns = column_statistics(metadata, unusable, rebased=self._times.rebases_dates)
        return pieces, Footer(metadata.num_row_groups, metadata.num_rows, dictionaries, columns)


class OrcLayout:
    """Layout of an ORC file."""

    format = "orc"
    has_page_checksums = False
    joins = True

    def __init__(
        self, schema: pa.Schema, options: OrcOptions, footer: Mapping[str, str], *, max_stripe_bytes: int
    ) -> None:
        """Raise NotOnGpuError if the GPU cannot write the file, or WriteOptionError if the CPU cannot either."""
        stride = options.row_index_stride or DEFAULT_ROW_INDEX_STRIDE
        _refuse_options(
            {
                "bloom filters": bool(options.bloom_filter_columns),
                f"a row index stride of {stride}": stride < _SHORTEST_STRIDE or bool(stride % _STRIDE_STEP),
            }
        )
        if any(map(is_wall_clock, schema_leaves(schema))):
            raise NotOnGpuError(ReasonKind.TYPE, "the GPU encoder cannot mark ORC timestamps as having no time zone")
        if any(map(is_float, schema_leaves(schema))):
            # The library ignores NaN in minimum, maximum and sum. ORC's Java reader needs a sum of NaN to learn that
            # minimum and maximum ignore NaN.
            raise NotOnGpuError(
                ReasonKind.TYPE, "the GPU encoder's ORC statistics would hide NaN values of float columns"
            )
        self._schema = stored_schema(schema)
        self._footer_entries = dict(footer)
        columns = device_columns(self._schema)
        if has_binary(columns):
            raise NotOnGpuError(ReasonKind.TYPE, "the GPU encoder would write binary ORC columns as strings")
        if has_flags(columns):
            # The library refuses booleans from the second row group on, when the file can no longer go to the CPU.
            raise NotOnGpuError(ReasonKind.TYPE, "the GPU encoder cannot write boolean ORC columns")
        self.plan = OrcPlan(
            columns=columns,
            codec=codec_name(options.compression),
            stripe_bytes=min(options.stripe_bytes or DEFAULT_STRIPE_BYTES, max_stripe_bytes),
            row_index_stride=stride,
        )

    def device_table(self, table: pa.Table) -> pa.Table:
        """Convert the next rows for the device; raises EncodeError."""
        return device_table(stored_table(table, self._schema), self.plan.columns)

    def finished(self, pieces: list[Piece], *, rows: int) -> tuple[list[Piece], Footer]:
        """Return the last pieces of the file, edited for Spark, and the facts from their footer."""
        return with_footer_entries(pieces, self._footer_entries), Footer(row_groups=0, rows=rows)


Layout = ParquetLayout | OrcLayout


def _refuse_options(asked_for: Mapping[str, bool]) -> None:
    if missing := [option for option, is_asked_for in asked_for.items() if is_asked_for]:
        raise NotOnGpuError(ReasonKind.OPTION, f"the GPU encoder does not support {', '.join(missing)}")


def _asks_for_a_level(compression: Compression) -> bool:
    return compression.HasField("level") and compression.level != _SPARK_LEVELS.get(compression.codec)


def _cut_bytes(options: ParquetOptions) -> int | None:
    """Return the size at which the library cuts joined row groups; None if this file's row groups are not joined."""
    wanted_bytes = int(options.row_group_bytes) or DEFAULT_ROW_GROUP_BYTES
    if options.row_group_rows or wanted_bytes < _SMALLEST_JOINED_BYTES:
        return None
    return wanted_bytes + max(wanted_bytes // 8, _LARGEST_USUAL_BATCH_BYTES)


def _has_statistics(options: ParquetOptions) -> bool:
    return bool(options.statistics) if options.HasField("statistics") else True


def _statistics(options: ParquetOptions) -> Statistics:
    if not _has_statistics(options):
        return Statistics.NONE
    return Statistics.PAGES if options.page_index else Statistics.ROW_GROUPS
