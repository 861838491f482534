# SPDX-License-Identifier: Apache-2.0
"""Parquet files that the encoder makes in memory, and their contents."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from updraft.v1.write_pb2 import ParquetOptions
from updraft_writer.encoders.leaves import with_leaf_fields
from updraft_writer.encoders.parquet import ParquetEncoder


def written(*tables: pa.Table, footer: dict[str, str] | None = None, **options: Any) -> bytes:
    encoder = ParquetEncoder(tables[0].schema, ParquetOptions(**options), footer or {})
    pieces = [piece for table in tables for piece in encoder.write(table)]
    return b"".join(pieces + encoder.close())


def metadata(data: bytes) -> Any:
    return pq.read_metadata(pa.BufferReader(data))


def read(data: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(data), coerce_int96_timestamp_unit="us")


def without_zones(table: pa.Table) -> pa.Table:
    """Remove time zones, which INT96 and Spark's footers do not store: only the values are compared."""

    def without_zone(field: pa.Field) -> pa.Field:
        return field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field

    return table.cast(pa.schema([with_leaf_fields(field, without_zone) for field in table.schema]))
