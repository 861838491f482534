# SPDX-License-Identifier: Apache-2.0
"""`make bench-gpu-variables`: which of libcudf's pinned-memory settings make several concurrent files faster.

The library reads its settings once, so each case runs in a separate process: the library's defaults, each of the
writer's settings alone, all settings together, and all settings without the writer's own pinned memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.programs.bench.writer_tables import mixed
from updraft.v1.write_pb2 import Compression, ParquetOptions, TimestampType, WriteCommand
from updraft_writer.file_factory import choose_encoder
from updraft_writer.gpu.admission import DeviceAdmission, DeviceLimits
from updraft_writer.gpu.gpu import Gpu, find_engine
from updraft_writer.gpu.staging import BLOCK_BYTES, Staging
from updraft_writer.reason import Reason

_FILES = 8
_POOL, _LARGEST_POOL = "LIBCUDF_PINNED_POOL_SIZE", "LIBCUDF_PINNED_POOL_MAX_SIZE"
# Settings that the writer itself makes on a machine with enough memory.
_SETTINGS = {
    _POOL: str(2 << 30),
    "LIBCUDF_ALLOCATE_HOST_AS_PINNED_THRESHOLD": str(4 << 20),
    "LIBCUDF_KERNEL_PINNED_COPY_THRESHOLD": str(64 << 10),
}


def main() -> None:
    """Measure each case in a separate process; with `--blocks`, measure one case in this process."""
    parser = argparse.ArgumentParser(prog="make bench-gpu-variables", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of a file (default: %(default)s)")
    parser.add_argument("--blocks", type=int, help="blocks of pinned memory of the one case to measure")
    parser.add_argument("--stand-in", action="store_true", help="try this program without a GPU")
    parser.add_argument("--output", type=Path, default=Path("build/bench/writer-gpu-variables.json"))
    options = parser.parse_args()
    if options.blocks is not None:
        print(_gb_per_second(options.rows, options.blocks, stand_in=options.stand_in))
        return
    measured = {}
    for name, settings, blocks in _cases():
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("LIBCUDF_")}
        command = [sys.executable, "-m", __spec__.name, "--rows", str(options.rows), "--blocks", str(blocks)]
        command += ["--stand-in"] if options.stand_in else []
        answer = subprocess.run(command, env=inherited | settings, stdout=subprocess.PIPE, text=True, check=True)
        measured[name] = float(answer.stdout.splitlines()[-1])
        print(f"{name:44} {measured[name]:8.3f} GB/s", flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(measured, indent=1) + "\n")


def _cases() -> Iterator[tuple[str, dict[str, str], int]]:
    yield "defaults", {}, 16
    for name, value in _SETTINGS.items():
        yield name, {name: value}, 16
    bounded = _SETTINGS | {_LARGEST_POOL: _SETTINGS[_POOL]}
    yield "all", bounded, 16
    yield "all, without pinned memory of the writer", bounded, 0


def _gb_per_second(rows: int, blocks: int, *, stand_in: bool) -> float:
    gpu = _gpu(blocks, stand_in=stand_in)
    table = mixed(rows)
    micros = TimestampType.TIMESTAMP_TYPE_MICROS
    options = ParquetOptions(compression=Compression(codec="CODEC_SNAPPY"), timestamps=micros)

    def write(_index: int) -> None:
        encoder = choose_encoder(WriteCommand(parquet=options), table.schema, gpu, max_stripe_bytes=0)
        encoder.write(table)
        assert encoder.on_gpu, encoder.reason

    with ThreadPoolExecutor(_FILES) as threads:
        # Do not count the first files, which load kernels and fill pools.
        list(threads.map(write, range(_FILES)))
        started = time.perf_counter()
        list(threads.map(write, range(3 * _FILES)))
        seconds = time.perf_counter() - started
    return round(3 * _FILES * int(table.nbytes) / 1e9 / seconds, 3)


def _gpu(blocks: int, *, stand_in: bool) -> Gpu:
    if stand_in:
        from tests.programs.bench.copying_device import CopyingDevice

        engine = CopyingDevice(1 / 7)
        return Gpu(engine, DeviceAdmission(DeviceLimits(1 << 36)), Staging(engine.pinned, blocks * BLOCK_BYTES))
    found = find_engine("gpu", memory_bytes=0)
    if isinstance(found, Reason):
        sys.exit(f"error: no GPU here: {found.text}")
    admission = DeviceAdmission(DeviceLimits(found.memory_bytes))
    return Gpu(found, admission, Staging(found.pinned, blocks * BLOCK_BYTES))


if __name__ == "__main__":
    main()
