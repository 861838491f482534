# SPDX-License-Identifier: Apache-2.0
"""`make bench-writer-sink`: cost of passing a row group through the writer, without encoding it.

The device is a stand-in that copies (`copying_device`), so this program runs without a GPU. For comparison, the program
also measures the CPU's encoder. Seconds are CPU seconds of all threads.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.programs.bench.copying_device import CopyingDevice
from tests.programs.bench.writer_tables import mixed
from updraft.service.allocator import return_freed_memory
from updraft.v1.write_pb2 import Compression, ParquetOptions, TimestampType, WriteCommand
from updraft_writer.file_factory import choose_encoder
from updraft_writer.gpu.admission import DeviceAdmission, DeviceLimits
from updraft_writer.gpu.gpu import Gpu
from updraft_writer.gpu.staging import Staging
from updraft_writer.reason import Reason, ReasonKind
from updraft_writer.sinks.local import LocalStorage

_ENCODERS = ("device", "device with checksums", "device without pinned memory", "cpu")
_BATCH_ROWS = 80_000


def main() -> None:
    """Measure each case and write the results as JSON."""
    parser = argparse.ArgumentParser(prog="make bench-writer-sink", description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of a row group (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="counted runs of each case (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("build/bench/writer-sink.json"))
    options = parser.parse_args()
    # Make the measuring processes use the same allocator as the writer.
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    measured = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for name, table in _tables(options.rows):
            _store(table, Path(folder) / name)
            for encoder in _ENCODERS:
                # Use a separate process for each case, so that freed memory does not affect the next case.
                with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
                    measured.append(process.submit(_measured, folder, name, encoder, options.repeat).result())
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(measured, indent=1) + "\n")
    print(
        f"{'table':16} {'encoder':28} {'raw MB':>7} {'encoded':>8} {'CPU s/GB':>12} {'faults':>7} {'other thread':>12}"
    )
    for entry in measured:
        print(
            f"{entry['table']:16} {entry['encoder']:28} {entry['raw_mb']:7.0f} {entry['encoded_mb']:8.1f} "
            f"{entry['cpu_s_per_gb']:12.3f} {entry['faults_per_gb']:7.0f} {entry['other_thread']:12.0%}"
        )


def _tables(rows: int) -> Iterator[tuple[str, pa.Table]]:
    yield "mixed", mixed(rows)
    yield "random integers", pa.table({"n": np.random.default_rng(3).integers(0, 1 << 62, 8 * rows)})


def _store(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table, max_chunksize=_BATCH_ROWS)


def _measured(folder: str, name: str, encoder: str, repeat: int) -> dict[str, Any]:
    return_freed_memory()
    table = pa.ipc.open_file(pa.memory_map(f"{folder}/{name}")).read_all()
    # Random integers do not compress, so they use no codec.
    fraction, codec = (1 / 7, "SNAPPY") if name == "mixed" else (1.0, "NONE")
    device = CopyingDevice(fraction, pins=encoder != "device without pinned memory")
    gpu = Gpu(device, DeviceAdmission(DeviceLimits(1 << 36)), Staging(device.pinned))
    options: dict[str, Any] = {"page_checksums": True} if encoder == "device with checksums" else {}
    compression = Compression(codec=f"CODEC_{codec}")
    micros = TimestampType.TIMESTAMP_TYPE_MICROS
    command = WriteCommand(parquet=ParquetOptions(compression=compression, timestamps=micros, **options))
    where = Reason(ReasonKind.ASKED, "the CPU, to compare with") if encoder == "cpu" else gpu
    file = choose_encoder(command, table.schema, where, max_stripe_bytes=64 << 20)
    cpu_seconds, faults, shares, encoded = [], [], [], 0
    storage = LocalStorage(Path(folder) / "file", sync=False)
    storage.open()
    for run in range(repeat + 1):
        other = _OtherThread()
        before, started = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
        pieces = file.write(table)
        took, after = time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF)
        share = other.ended()
        encoded = sum(map(len, pieces))
        while pieces:
            storage.write(pieces.pop(0))
        if run:
            cpu_seconds.append(took - other.cpu_seconds)
            faults.append(after.ru_minflt - before.ru_minflt)
            shares.append(share)
    storage.discard()
    gigabytes = table.nbytes / 1e9
    return {
        "table": name,
        "encoder": encoder,
        "raw_mb": table.nbytes / 1e6,
        "encoded_mb": encoded / 1e6,
        "cpu_s_per_gb": round(statistics.median(cpu_seconds) / gigabytes, 4),
        "faults_per_gb": round(statistics.median(faults) / gigabytes),
        "other_thread": round(statistics.median(shares), 3),
    }


class _OtherThread:
    """Thread that computes in Python. Its progress shows for how long other threads held the interpreter's lock."""

    def __init__(self) -> None:
        self.cpu_seconds = 0.0
        self._wall = time.perf_counter()
        self._is_over = False
        self._thread = threading.Thread(target=self._compute, daemon=True)
        self._thread.start()

    def ended(self) -> float:
        self._is_over = True
        self._thread.join()
        return self.cpu_seconds / (time.perf_counter() - self._wall)

    def _compute(self) -> None:
        while not self._is_over:
            sum(range(200))
        self.cpu_seconds = time.thread_time()


if __name__ == "__main__":
    main()
