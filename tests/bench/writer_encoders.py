# SPDX-License-Identifier: Apache-2.0
"""Encoders without a service: ours, pyarrow's defaults and polars, each given the same table in memory."""

from __future__ import annotations

import importlib.util
import io
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.writer_record import Measured
from tests.bench.writer_tables import TABLES
from updraft.v1.write_pb2 import Codec, Compression, ParquetOptions, TimestampType
from updraft_writer.encoders.parquet import ParquetEncoder

CODECS = {"snappy": Codec.CODEC_SNAPPY, "zstd": Codec.CODEC_ZSTD, "lz4": Codec.CODEC_LZ4}
ZSTD_LEVEL = 1

Encode = Callable[[pa.Table, str], int]


def ours(table: pa.Table, codec: str) -> int:
    """Bytes of the file by the writer's encoder."""
    options = ParquetOptions(
        compression=Compression(codec=CODECS[codec], level=ZSTD_LEVEL if codec == "zstd" else None),
        timestamps=TimestampType.TIMESTAMP_TYPE_MICROS,
    )
    encoder = ParquetEncoder(table.schema, options, {})
    return sum(map(len, encoder.write(table) + encoder.close()))


def pyarrow_default(table: pa.Table, codec: str) -> int:
    """Bytes of the file by pyarrow with nothing but the codec said."""
    file = io.BytesIO()
    level = ZSTD_LEVEL if codec == "zstd" else None
    pq.write_table(table, file, compression=codec, compression_level=level, row_group_size=table.num_rows)
    return file.tell()


def polars(table: pa.Table, codec: str) -> int:
    """Bytes of the file by polars, which uses all cores."""
    import polars

    file = io.BytesIO()
    polars.from_arrow(table, rechunk=False).write_parquet(
        file,
        compression=codec,
        compression_level=ZSTD_LEVEL if codec == "zstd" else None,
        row_group_size=table.num_rows,
    )
    return file.tell()


def encoders() -> list[dict[str, Encode]]:
    """By name, those that may take turns together; polars where it is installed (`make bench-writer` sees to that).

    Threads that polars has started live on and would be counted with whoever comes after it: it is alone, and last.
    """
    alone: list[dict[str, Encode]] = [{"polars": polars}] if importlib.util.find_spec("polars") else []
    return [{"updraft": ours, "pyarrow": pyarrow_default}, *alone]


def measure(repeat: int) -> list[Measured]:
    """All tables, codecs and encoders, a case after the other; encoders that may take turns do so."""
    tables = {name: make().combine_chunks() for name, make in TABLES.items()}
    cases = [(f"{name} {codec}", table, codec) for name, table in tables.items() for codec in CODECS]
    measured: dict[str, list[Measured]] = {}
    for together in encoders():
        for case, table, codec in cases:
            variants = {name: Measured(case, name, table.nbytes) for name in together}
            for _ in range(repeat):
                for name, encode in together.items():
                    _run(variants[name], encode, table, codec)
            measured.setdefault(case, []).extend(variants.values())
    return [entry for variants in measured.values() for entry in variants]


def _run(measured: Measured, encode: Encode, table: pa.Table, codec: str) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    measured.file_bytes = encode(table, codec)
    measured.wall_s.append(round(time.perf_counter() - wall, 4))
    measured.cpu_s.append(round(time.process_time() - cpu, 4))
