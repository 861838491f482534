# SPDX-License-Identifier: Apache-2.0
"""ORC on the CPU by pyarrow."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc

from updraft.errors import EncodeError, WriteOptionError
from updraft.v1.write_pb2 import OrcOptions
from updraft_writer.encoders.codecs import codec_name, compression_level
from updraft_writer.encoders.encoder import EncodedBytes, Footer
from updraft_writer.encoders.leaves import leaf_types
from updraft_writer.encoders.timestamps import is_instant

DEFAULT_STRIPE_BYTES = 64 * 1024 * 1024
_DEFAULT_ROW_INDEX_STRIDE = 10_000
# Spark's orc.dictionary.key.threshold.
_DICTIONARY_THRESHOLD = 0.8
# The library's own buffers: they are there before the first row.
_BYTES_PER_FILE = 2 * 1024 * 1024
_BYTES_PER_COLUMN = 512 * 1024
_ORC_NAMES = {"none": "uncompressed", "gzip": "zlib"}


class OrcEncoder:
    """Encodes one ORC file. A stripe is not a row group of ours: the library ends one when it is large enough."""

    name = "pyarrow-orc"

    def __init__(
        self, schema: pa.Schema, options: OrcOptions, footer: Mapping[str, str], *, max_stripe_bytes: int
    ) -> None:
        """Check everything that can be checked without data; raises WriteOptionError."""
        if footer:
            raise WriteOptionError("key-value pairs in the footer of an ORC file are not there: send none")
        if compression_level(options.compression) is not None:
            raise WriteOptionError("ORC has no compression levels here: send none")
        self._time_zone = options.time_zone or "UTC"
        self._schema = self._stored_schema(schema)
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
            self._writer.write(self._stored_table(table))
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
        return self._output.take()

    def _opened(self, output: EncodedBytes) -> orc.ORCWriter:
        return orc.ORCWriter(
            output,
            stripe_size=self._stripe_bytes,
            compression=_ORC_NAMES.get(self._codec, self._codec),
            row_index_stride=self._row_index_stride,
            dictionary_key_size_threshold=_DICTIONARY_THRESHOLD,
        )

    def _check_types(self) -> None:
        """Write an empty file: it shows at once what ORC cannot hold."""
        try:
            writer = self._opened(EncodedBytes())
            writer.write(pa.Table.from_batches([], self._schema))
            writer.close()
        except (pa.ArrowException, OSError) as error:
            raise WriteOptionError(f"the file cannot be written as ORC: {error}") from error

    def _stored_schema(self, schema: pa.Schema) -> pa.Schema:
        """ORC as Spark has it keeps instants as the wall clock of the writer's time zone."""
        try:
            pc.local_timestamp(pa.nulls(1, pa.timestamp("us", self._time_zone)))
        except pa.ArrowException as error:
            raise WriteOptionError(f"no time zone {self._time_zone!r}: {error}") from error
        fields = []
        for field in schema:
            if is_instant(field.type):
                fields.append(field.with_type(pa.timestamp(field.type.unit)))
            elif any(map(is_instant, leaf_types(field.type))):
                raise WriteOptionError(f"column {field.name!r}: ORC timestamps inside of nested columns")
            else:
                fields.append(field)
        return pa.schema(fields)

    def _stored_table(self, table: pa.Table) -> pa.Table:
        columns = [
            pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, self._time_zone)))
            if is_instant(column.type)
            else column
            for column in table.columns
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)
