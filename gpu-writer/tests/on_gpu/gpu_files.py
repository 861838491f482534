# SPDX-License-Identifier: Apache-2.0
"""Files written twice: by the GPU's encoder and by the CPU's."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from updraft.v1.write_pb2 import OrcOptions, ParquetOptions, WriteCommand
from updraft_writer.encoders.encoder import Encoder
from updraft_writer.file_factory import choose_encoder
from updraft_writer.gpu.gpu import Gpu
from updraft_writer.reason import Reason, ReasonKind

CPU = Reason(ReasonKind.ASKED, "the CPU's file, to compare with")
KEYS = {"org.apache.spark.version": "4.3.0", "org.apache.spark.sql.parquet.row.metadata": '{"type":"struct"}'}


def encoder_for(gpu: Gpu | Reason, schema: pa.Schema, options: ParquetOptions | OrcOptions) -> Encoder:
    kind = "orc" if isinstance(options, OrcOptions) else "parquet"
    command = WriteCommand(footer=KEYS, **{kind: options})  # type: ignore[arg-type]
    return choose_encoder(command, schema, gpu, max_stripe_bytes=1 << 26)


def written(gpu: Gpu | Reason, options: ParquetOptions | OrcOptions, *tables: pa.Table) -> bytes:
    """Return the file; raise AssertionError if there is a GPU that did not encode it."""
    encoder = encoder_for(gpu, tables[0].schema, options)
    data = b"".join([piece for table in tables for piece in encoder.write(table)] + encoder.close())
    assert encoder.on_gpu == isinstance(gpu, Gpu), encoder.reason
    assert encoder.footer.rows == sum(table.num_rows for table in tables)
    return data


def read(data: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(data), coerce_int96_timestamp_unit="us")


def leaves(data: bytes) -> list[tuple[Any, ...]]:
    """Return a Parquet footer's description of each column, except the width of large decimals, which Spark ignores."""
    columns = pq.read_metadata(pa.BufferReader(data)).schema
    return [
        (
            column.path,
            column.physical_type,
            str(column.logical_type),
            column.max_definition_level,
            column.max_repetition_level,
        )
        for column in (columns.column(index) for index in range(len(columns)))
    ]
