# SPDX-License-Identifier: Apache-2.0
"""Encoders without a service: ours, pyarrow with its defaults, and polars, on the same table in memory."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import itertools
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

from tests.programs.bench.writer_record import Measured
from tests.programs.bench.writer_tables import TABLES
from updraft.v1.write_pb2 import Codec, Compression, Encodings, ParquetOptions, TimestampType
from updraft_writer.encoders.parquet import ParquetEncoder

CODECS = {"snappy": Codec.CODEC_SNAPPY, "zstd": Codec.CODEC_ZSTD, "lz4": Codec.CODEC_LZ4}
ZSTD_LEVEL = 1
# Number of runs. A run takes a fraction of a second, so noise of the machine may be a large part of a run's time.
_FEWEST_RUNS = 9
# Number of warm-up runs for each case and encoder, in which the encoder's process allocates the memory that it needs.
_RUNS_BEFORE = 2

Encode = Callable[[pa.Table, str], int]


def ours(table: pa.Table, codec: str, encodings: Encodings = Encodings.ENCODINGS_COMPATIBLE) -> int:
    """Encode with the writer's encoder; return the file size."""
    options = ParquetOptions(
        encodings=encodings,
        compression=Compression(codec=CODECS[codec], level=ZSTD_LEVEL if codec == "zstd" else None),
        timestamps=TimestampType.TIMESTAMP_TYPE_MICROS,
    )
    encoder = ParquetEncoder(table.schema, options, {})
    return sum(map(len, encoder.write(table) + encoder.close()))


def ours_compact(table: pa.Table, codec: str) -> int:
    """Encode with the writer's encoder and all encodings; return the file size."""
    return ours(table, codec, Encodings.ENCODINGS_COMPACT)


def pyarrow_default(table: pa.Table, codec: str) -> int:
    """Encode with pyarrow and its default options; return the file size."""
    file = io.BytesIO()
    level = ZSTD_LEVEL if codec == "zstd" else None
    pq.write_table(table, file, compression=codec, compression_level=level, row_group_size=table.num_rows)
    return file.tell()


def polars(table: pa.Table, codec: str) -> int:
    """Encode with polars, which uses all cores; return the file size."""
    import polars

    file = io.BytesIO()
    polars.from_arrow(table, rechunk=False).write_parquet(
        file,
        compression=codec,
        compression_level=ZSTD_LEVEL if codec == "zstd" else None,
        row_group_size=table.num_rows,
    )
    return file.tell()


def encoders() -> dict[str, Encode]:
    """Return the encoders by name. polars is included if it is installed (`make bench-writer` installs it)."""
    found: dict[str, Encode] = {"updraft": ours, "compact": ours_compact, "pyarrow": pyarrow_default}
    return found | ({"polars": polars} if importlib.util.find_spec("polars") else {})


def measure(repeat: int) -> list[Measured]:
    """Measure all tables and codecs one after the other; the encoders take turns.

    Each encoder has its own process, so that its threads and freed memory do not affect the next encoder.
    """
    with contextlib.ExitStack() as stack:
        context = multiprocessing.get_context("spawn")
        processes = {
            name: stack.enter_context(ProcessPoolExecutor(max_workers=1, mp_context=context)) for name in encoders()
        }
        measured: list[Measured] = []
        for table, codec in itertools.product(TABLES, CODECS):
            raw_bytes = _table(table).nbytes
            variants = {name: Measured(f"{table} {codec}", name, raw_bytes) for name in processes}
            for number in range(_RUNS_BEFORE + max(repeat, _FEWEST_RUNS)):
                for name, process in processes.items():
                    run = process.submit(_run, name, table, codec).result()
                    if number >= _RUNS_BEFORE:
                        _add(variants[name], run)
            measured += variants.values()
    return measured


@functools.cache
def _table(name: str) -> pa.Table:
    return TABLES[name]().combine_chunks()


def _run(name: str, table: str, codec: str) -> tuple[float, float, int]:
    """Return the wall and CPU seconds of one run, and the file size in bytes."""
    rows, encode = _table(table), encoders()[name]
    wall, cpu = time.perf_counter(), time.process_time()
    file_bytes = encode(rows, codec)
    return time.perf_counter() - wall, time.process_time() - cpu, file_bytes


def _add(measured: Measured, run: tuple[float, float, int]) -> None:
    wall, cpu, measured.file_bytes = run
    measured.wall_s.append(round(wall, 4))
    measured.cpu_s.append(round(cpu, 4))
