# SPDX-License-Identifier: Apache-2.0
"""ORC on the CPU by pyarrow, as Spark has it.

Dates and times are in the calendar of Spark 2, points in time as the wall clock of a time zone, which is what an ORC
timestamp is; times without a zone are integers.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc

from updraft.errors import EncodeError, WriteOptionError
from updraft.v1.write_pb2 import OrcOptions
from updraft_writer.encoders.calendars import PER_SECOND, hybrid_dates, hybrid_wall_clocks
from updraft_writer.encoders.codecs import codec_name, compression_level
from updraft_writer.encoders.encoder import EncodedBytes, Footer, with_end
from updraft_writer.encoders.leaves import leaf_types, with_leaf_fields, with_leaves
from updraft_writer.encoders.orc_tail import TAIL_BYTES, with_footer_entries
from updraft_writer.encoders.timestamps import check_time_zone, is_instant, is_wall_clock

DEFAULT_STRIPE_BYTES = 64 * 1024 * 1024
_DEFAULT_ROW_INDEX_STRIDE = 10_000
_CONVERTED_ROWS = 64 * 1024
# Spark's orc.dictionary.key.threshold.
_DICTIONARY_THRESHOLD = 0.8
# The library's own buffers: they are there before the first row.
_BYTES_PER_FILE = 2 * 1024 * 1024
_BYTES_PER_COLUMN = 512 * 1024
_ORC_NAMES = {"none": "uncompressed", "gzip": "zlib"}
_DEFAULT_BLOOM_FALSE_POSITIVES = 0.01
# 2038-01-01: Arrow's time zones end with 2037.
_FIRST_SECOND_WITHOUT_RULES = 2_145_916_800
# What Spark reads the type of an integer column from.
_CATALYST_TYPE = "spark.sql.catalyst.type"


class OrcEncoder:
    """Encodes one ORC file. A stripe is not a row group of ours: the library ends one when it is large enough."""

    name = "pyarrow-orc"

    def __init__(
        self, schema: pa.Schema, options: OrcOptions, footer: Mapping[str, str], *, max_stripe_bytes: int
    ) -> None:
        """Check everything that can be checked without data; raises WriteOptionError."""
        if compression_level(options.compression) is not None:
            raise WriteOptionError("ORC has no compression levels here: send none")
        self._time_zone = options.time_zone or "UTC"
        check_time_zone(self._time_zone)
        self._footer_entries = dict(footer)
        self._schema = pa.schema([with_leaf_fields(field, _stored_field) for field in schema])
        self._bloom_filters = self._bloom_filter_arguments(options)
        self._stripe_bytes = min(options.stripe_bytes or DEFAULT_STRIPE_BYTES, max_stripe_bytes)
        self._row_index_stride = options.row_index_stride or _DEFAULT_ROW_INDEX_STRIDE
        self._codec = codec_name(options.compression)
        self._unstored_bytes = 0
        self._rows = 0
        self._check_types()
        self._output = EncodedBytes()
        self._writer = self._opened(self._output)

    @property
    def retained_bytes(self) -> int:
        """What the writer holds: its buffers and a stripe that is not full."""
        columns = sum(1 for field in self._schema for _ in leaf_types(field.type))
        return _BYTES_PER_FILE + columns * _BYTES_PER_COLUMN + min(self._unstored_bytes, self._stripe_bytes)

    @property
    def footer(self) -> Footer:
        """What the footer says, once closed."""
        return Footer(row_groups=0, rows=self._rows)

    def write(self, table: pa.Table) -> list[bytes]:
        """Encode a row group; raises EncodeError."""
        self._unstored_bytes += table.nbytes
        self._rows += table.num_rows
        try:
            # What is converted lies beside what it was made from: never more than so many rows of it.
            for start in range(0, table.num_rows, _CONVERTED_ROWS):
                self._writer.write(self._stored_table(table.slice(start, _CONVERTED_ROWS)))
        except (pa.ArrowException, OSError) as error:
            raise EncodeError(f"rows cannot be encoded as ORC: {error}") from error
        pieces = self._output.take()
        if pieces:
            # A stripe has ended somewhere in this table: at most all of it is in the next one.
            self._unstored_bytes = table.nbytes
        return pieces

    def close(self) -> list[bytes]:
        """Write the footer; raises EncodeError."""
        try:
            if not self._rows:
                # The library learns the schema from the first table, even from one without rows.
                self._writer.write(pa.Table.from_batches([], self._schema))
            self._writer.close()
        except (pa.ArrowException, OSError) as error:
            raise EncodeError(f"the footer cannot be written: {error}") from error
        *before, end = with_end(self._output.take(), TAIL_BYTES)
        return [*before, with_footer_entries(end, self._footer_entries)]

    def _opened(self, output: EncodedBytes) -> orc.ORCWriter:
        return orc.ORCWriter(
            output,
            stripe_size=self._stripe_bytes,
            compression=_ORC_NAMES.get(self._codec, self._codec),
            row_index_stride=self._row_index_stride,
            dictionary_key_size_threshold=_DICTIONARY_THRESHOLD,
            **self._bloom_filters,
        )

    def _check_types(self) -> None:
        """Write an empty file: it shows at once what ORC cannot hold."""
        try:
            writer = self._opened(EncodedBytes())
            writer.write(pa.Table.from_batches([], self._schema))
            writer.close()
        except (pa.ArrowException, OSError) as error:
            raise WriteOptionError(f"the file cannot be written as ORC: {error}") from error

    def _bloom_filter_arguments(self, options: OrcOptions) -> dict[str, Any]:
        names = self._schema.names
        for column in options.bloom_filter_columns:
            if column not in names:
                raise WriteOptionError(f"bloom filter over {column!r}: the columns are {', '.join(names)}")
        if not options.bloom_filter_columns:
            return {}
        return {
            "bloom_filter_columns": [self._column_id(column) for column in options.bloom_filter_columns],
            "bloom_filter_fpp": options.bloom_filter_false_positive_probability or _DEFAULT_BLOOM_FALSE_POSITIVES,
        }

    def _column_id(self, name: str) -> int:
        """The number of a column in ORC, which counts every level of nesting, from the row itself."""
        return 1 + sum(_levels(field.type) for field in list(self._schema)[: self._schema.names.index(name)])

    def _stored_table(self, table: pa.Table) -> pa.Table:
        columns = [
            pa.chunked_array([with_leaves(chunk, field.type, self._stored_leaf) for chunk in column.chunks], field.type)
            if column.type != field.type or any(map(pa.types.is_date32, leaf_types(column.type)))
            else column
            for column, field in zip(table.columns, self._schema, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _stored_leaf(self, leaf: pa.Array, stored: pa.DataType) -> pa.Array:
        if pa.types.is_date32(leaf.type):
            return hybrid_dates(leaf)
        if is_instant(leaf.type):
            return hybrid_wall_clocks(self._wall_clock(leaf))
        if is_wall_clock(leaf.type):
            return leaf.cast(pa.timestamp("us")).cast(stored)
        return leaf

    def _check_range(self, units: pa.Array, per_second: int) -> None:
        """The library loses fractions of seconds before 1970; its zones are Java's from 1970 to 2037."""
        old = pc.filter(units, pc.less(units, 0))
        if self._time_zone == "UTC":
            right = pc.equal(pc.multiply(pc.divide(old, per_second), per_second), old)
        else:
            right = pc.and_(pc.greater_equal(units, 0), pc.less(units, _FIRST_SECOND_WITHOUT_RULES * per_second))
        if not pc.all(right, min_count=0).as_py():
            raise EncodeError(
                "a timestamp before 1970 with a fraction of a second, or one before 1970 or after 2037 in another time "
                "zone than UTC, cannot be encoded as ORC here so that Java reads it rightly: use Spark's own format"
            )

    def _wall_clock(self, instants: pa.Array) -> pa.Array:
        unit = instants.type.unit
        self._check_range(instants.cast(pa.int64()), PER_SECOND[unit])
        shown = pc.local_timestamp(instants.cast(pa.timestamp(unit, self._time_zone)))
        try:
            pc.assume_timezone(shown, self._time_zone)
        except pa.ArrowException as error:
            raise EncodeError(
                f"an ORC timestamp is a time of day, and clocks of {self._time_zone} show this one twice: {error}; "
                "use Spark's own format, or run Spark in a time zone that never sets its clocks back, such as UTC"
            ) from error
        return shown


def _stored_field(field: pa.Field) -> pa.Field:
    if is_instant(field.type):
        return field.with_type(pa.timestamp(field.type.unit))
    if is_wall_clock(field.type):
        return field.with_type(pa.int64()).with_metadata({_CATALYST_TYPE: "timestamp_ntz"})
    return field


def _levels(data_type: pa.DataType) -> int:
    if pa.types.is_map(data_type):
        return 1 + _levels(data_type.key_type) + _levels(data_type.item_type)
    return 1 + sum(_levels(data_type.field(index).type) for index in range(data_type.num_fields))
