# SPDX-License-Identifier: Apache-2.0
"""Asynchronous against synchronous writing by a service, to slow and to fast storage, for several quotas.

Four producers represent four Spark tasks: each produces its rows at its own pace and writes one file. The slow storage
accepts each file's bytes at a fixed rate, as an object store does; the fast storage is the disk.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa

from tests.programs.bench.writer_record import Measured
from tests.programs.bench.writer_tables import mixed
from tests.support.cpu import cpu_seconds
from tests.support.paths import REPOSITORY
from tests.support.service import WITH_ITS_OWNER
from updraft.client.writer import WriterClient
from updraft.v1.write_pb2 import Codec, Compression, Pace, ParquetOptions, TimestampType

MIB = 1 << 20
PRODUCERS = 4
# About 4 MiB, the size of the connector's batches. Four batches make a row group, so that a file has many row groups.
BATCH_ROWS = 45_000
ROW_GROUP_BYTES = 16 * MIB
# Typical rates of a Spark task and of one upload to an object store.
PRODUCED_BYTES_PER_SECOND = 60_000_000
SLOW_BYTES_PER_SECOND = 25_000_000
FAST_BYTES_PER_SECOND = 1 << 40
SINKS = {"slow": SLOW_BYTES_PER_SECOND, "fast": FAST_BYTES_PER_SECOND}
PACES = {"asynchronous": Pace.PACE_ASYNCHRONOUS, "synchronous": Pace.PACE_SYNCHRONOUS}
OPTIONS = ParquetOptions(
    compression=Compression(codec=Codec.CODEC_SNAPPY),
    timestamps=TimestampType.TIMESTAMP_TYPE_MICROS,
    row_group_bytes=ROW_GROUP_BYTES,
)
_START_SECONDS = 30.0
_SCRIPT = REPOSITORY / "gpu-writer/tests/slow_writer.py"


@dataclass
class Service:
    """Writer service in a separate process."""

    process: subprocess.Popen[bytes]
    address: str
    root: Path
    base_bytes: int = 0

    @property
    def resident_bytes(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)


@contextmanager
def service(directory: Path, quota_mib: int, bytes_per_second: int) -> Iterator[Service]:
    """Run a writer for the duration of the block."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    ready, told = directory / "ready.json", directory / "log"
    arguments = [str(directory), str(ready), str(quota_mib * MIB), str(bytes_per_second)]
    with told.open("wb") as log:
        process = subprocess.Popen([*WITH_ITS_OWNER, sys.executable, str(_SCRIPT), *arguments], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the writer did not start: {told.read_text()}")
            time.sleep(0.02)
        yield Service(process, json.loads(ready.read_text())["listen"], directory)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def measure(directory: Path, quotas_mib: list[int], *, batches: int, repeat: int) -> Iterator[Measured]:
    """Measure all sinks, quotas and paces; the paces take turns on the same service."""
    table = mixed(BATCH_ROWS)
    for sink, bytes_per_second in SINKS.items():
        with ExitStack() as stack:
            services = {
                quota: stack.enter_context(service(directory / f"{sink}-{quota}", quota, bytes_per_second))
                for quota in quotas_mib
            }
            measured = {
                (quota, pace): Measured(f"{sink} sink", pace, PRODUCERS * batches * table.nbytes, quota)
                for quota in quotas_mib
                for pace in PACES
            }
            for writer in services.values():
                _write(writer, table, Pace.PACE_ASYNCHRONOUS, batches=1)
                writer.base_bytes = writer.resident_bytes
            for _ in range(repeat):
                for (quota, pace), entry in measured.items():
                    _run(entry, services[quota], table, PACES[pace], batches)
            yield from measured.values()


def _run(entry: Measured, writer: Service, table: pa.Table, pace: Pace, batches: int) -> None:
    done, peaks = threading.Event(), [0]

    def watch() -> None:
        while not done.wait(0.02):
            peaks[0] = max(peaks[0], writer.resident_bytes - writer.base_bytes)

    watching = threading.Thread(target=watch)
    watching.start()
    wall, cpu = time.perf_counter(), cpu_seconds([writer.process.pid])
    entry.file_bytes = _write(writer, table, pace, batches=batches)
    entry.wall_s.append(round(time.perf_counter() - wall, 4))
    entry.cpu_s.append(round(cpu_seconds([writer.process.pid]) - cpu, 4))
    done.set()
    watching.join()
    entry.peak_bytes.append(peaks[0])


def _write(writer: Service, table: pa.Table, pace: Pace, *, batches: int) -> int:
    """Let all producers write one file each at the same time; return the total size in bytes."""
    sizes: list[int] = []

    def produce(number: int) -> None:
        path = str(writer.root / f"{number}.parquet")
        with (
            WriterClient(writer.address) as client,
            client.create(path, table.schema, OPTIONS, pace=pace, max_batch_bytes=table.nbytes) as file,
        ):
            for _ in range(batches):
                time.sleep(table.nbytes / PRODUCED_BYTES_PER_SECOND)
                file.write(table)
        sizes.append(file.receipt.file_bytes)

    producers = [threading.Thread(target=produce, args=(number,)) for number in range(PRODUCERS)]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join()
    if len(sizes) != PRODUCERS:
        raise RuntimeError("a producer failed: see above")
    return sum(sizes)
