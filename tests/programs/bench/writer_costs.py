# SPDX-License-Identifier: Apache-2.0
"""Measurement of the constants in the writer's cost model: seconds by codec and kind of column, and concurrent files.

The GPU encodes row groups of two sizes, which separates the constant time of a write from the time for each byte.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.programs.bench.writer_tables import mixed
from updraft.v1.write_pb2 import Compression, ParquetOptions, TimestampType, WriteCommand
from updraft_writer.file_factory import choose_encoder
from updraft_writer.gpu.costs import Costs
from updraft_writer.gpu.gpu import Gpu
from updraft_writer.reason import Reason, ReasonKind

CODECS = ("NONE", "SNAPPY", "ZSTD", "LZ4")
_CPU = Reason(ReasonKind.ASKED, "the CPU, to compare with")
_FILES_AT_ONCE = 8
_GB = 1e9


def tables(rows: int) -> dict[str, pa.Table]:
    """Return a table for each kind of column; "other" stands for the mixed table."""
    choose = np.random.default_rng(5)
    numbers = choose.integers(0, 1 << 62, 4 * rows)
    cents = pa.array(choose.integers(0, 10**7, 2 * rows)).cast(pa.decimal128(20, 0)).cast(pa.decimal128(18, 2))
    texts = pc.binary_join_element_wise("customer", pc.cast(pa.array(numbers[:rows]), pa.string()), "#")
    at = pa.array(1_700_000_000_000_000 + np.cumsum(choose.integers(0, 2_000_000, 4 * rows)))
    return {
        "integers": pa.table({"n": numbers}),
        "floats": pa.table({"f": choose.random(4 * rows)}),
        "times": pa.table({"at": at.cast(pa.timestamp("us", "UTC"))}),
        "decimals": pa.table({"d": cents}),
        "texts": pa.table({"s": texts}),
        "other": mixed(rows),
    }


def measure(gpu: Gpu, *, machine: str, rows: int, repeat: int) -> Costs:
    """Measure all constants, on `rows` rows of the mixed table."""
    found = tables(rows)
    per_write: dict[str, float] = {}
    on_cpu: dict[str, dict[str, float]] = {}
    on_gpu: dict[str, dict[str, float]] = {}
    for codec in CODECS:
        name = codec.lower()
        on_cpu[name] = {}
        on_gpu[name] = {}
        constants = []
        for kind, table in found.items():
            part = table.slice(0, table.num_rows // 4)
            on_cpu[name][kind] = round(_seconds(_CPU, codec, part, repeat) / (part.nbytes / _GB), 3)
            small, large = (_seconds(gpu, codec, each, repeat) for each in (part, table))
            per_byte = max(0.0, (large - small) / (table.nbytes - part.nbytes))
            constants.append(max(0.0, large - per_byte * table.nbytes))
            on_gpu[name][kind] = round(per_byte * _GB, 3)
        per_write[name] = round(statistics.median(constants), 4)
    return Costs(
        machine=machine,
        cpu_seconds_per_gb=on_cpu,
        gpu_seconds_per_gb=on_gpu,
        gpu_seconds_per_write=per_write,
        cpu_threads=_at_once(_CPU, found["other"], len(os.sched_getaffinity(0))),
        gpu_files=_at_once(gpu, found["other"], _FILES_AT_ONCE),
    )


def as_json(costs: Costs) -> dict[str, Any]:
    """Return the constants in the format of the writer's `costs.json`."""
    return dataclasses.asdict(costs)


def described(costs: Costs) -> list[str]:
    """Return a line for each codec: gigabytes per second of both encoders, by kind of column."""
    lines = [
        f"threads of the CPU: {costs.cpu_threads:.1f} times one; files on the GPU: {costs.gpu_files:.1f} times one"
    ]
    for codec, by_kind in costs.gpu_seconds_per_gb.items():
        speeds = (
            f"{kind} {_speed(seconds)} (CPU {_speed(costs.cpu_seconds_per_gb[codec][kind])})"
            for kind, seconds in by_kind.items()
        )
        lines.append(f"{codec}: {costs.gpu_seconds_per_write[codec]:.3f} s a write, then GB/s: {', '.join(speeds)}")
    return lines


def _speed(seconds_per_gb: float) -> str:
    return f"{1 / seconds_per_gb:.2f}" if seconds_per_gb else "?"


def _seconds(where: Gpu | Reason, codec: str, table: pa.Table, repeat: int) -> float:
    """Return the median seconds for one row group; skip the first run, which loads kernels and fills pools."""
    seconds = [_timed(lambda: _encode(where, codec, table)) for _ in range(repeat + 1)]
    return statistics.median(seconds[1:])


def _timed(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def _encode(where: Gpu | Reason, codec: str, table: pa.Table) -> None:
    compression, micros = Compression(codec=f"CODEC_{codec}"), TimestampType.TIMESTAMP_TYPE_MICROS
    # Spark's default options.
    options = ParquetOptions(compression=compression, timestamps=micros, page_checksums=True)
    encoder = choose_encoder(WriteCommand(parquet=options), table.schema, where, max_stripe_bytes=0)
    encoder.write(table)
    assert encoder.on_gpu == isinstance(where, Gpu), encoder.reason


def _at_once(where: Gpu | Reason, table: pa.Table, files: int) -> float:
    """Return the speed of encoding `files` files at once, as a multiple of the speed of one file."""
    alone = min(_timed(lambda: _encode(where, "SNAPPY", table)) for _ in range(3))
    with ThreadPoolExecutor(files) as threads:
        tasks = 3 * files
        together = _timed(lambda: deque(threads.map(lambda _: _encode(where, "SNAPPY", table), range(tasks)), maxlen=0))
    return round(max(1.0, tasks * alone / together), 2)
