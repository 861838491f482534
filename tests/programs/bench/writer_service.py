# SPDX-License-Identifier: Apache-2.0
"""`make bench-gpu-service`: raw bytes that a writer accepts per second, for 1, 4 and 8 clients and each encoder.

Each client is a process that writes one file after the other into memory (/dev/shm), with Spark's default options. The
program also measures the service's own CPU time and memory. `--encoders stand-in,cpu` runs without a GPU: the stand-in
copies instead of encoding, so the CPU time with it is the time for receiving, staging and storing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from tests.programs.bench.copying_device import FoundDevice
from tests.programs.bench.writer_costs import tables
from tests.support.constants import NOTHING
from tests.support.cpu import cpu_seconds
from tests.support.paths import REPOSITORY
from tests.support.writer import LocalWriter
from updraft.client.writer import WriterClient
from updraft.v1.write_pb2 import Compression, ParquetOptions, TimestampType

_CLIENTS = (1, 4, 8)
# Each number of clients writes the first table; the largest number also writes the other tables.
_MIXES = ("other", "integers", "floats", "texts")
_BATCH_BYTES = 8 << 20


def main() -> None:
    """Measure everything and write the results as JSON."""
    parser = argparse.ArgumentParser(prog="make bench-gpu-service", description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of the mixed table (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each case (default: %(default)s)")
    parser.add_argument("--codec", default="SNAPPY")
    parser.add_argument("--encoders", default="gpu,auto,cpu", help="as in --encoder, or stand-in, by comma")
    parser.add_argument("--output", type=Path, default=Path("build/bench/writer-service.json"))
    options = parser.parse_args()
    measured: list[dict[str, Any]] = []
    # The writer imports the stand-in from the repository.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        found = tables(options.rows)
        for mix in _MIXES:
            _store(found[mix], Path(folder) / mix)
        del found
        with _clients(Path(folder), options.codec) as clients:
            for encoder in options.encoders.split(","):
                measured += _measured(encoder, clients, Path(folder), options.seconds)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(measured, indent=1) + "\n")


def _measured(encoder: str, clients: list[Connection], folder: Path, seconds: float) -> Iterator[dict[str, Any]]:
    is_stand_in = encoder == "stand-in"
    arguments = ["--encoder", "gpu" if is_stand_in else encoder, "--log-level", "warning"]
    constants = {"updraft_writer.writer.find_engine": FoundDevice()} if is_stand_in else NOTHING
    with LocalWriter(folder, arguments=arguments, constants=constants) as writer:
        process, address = psutil.Process(writer.pid), writer.tcp_address
        # The stand-in returns as many bytes as libcudf returns for the mixed table, so the clients write only this
        # table. The stand-in's footer does not describe its pages, so the pages have no checksums; `bench-writer-sink`
        # measures the cost of checksums.
        for mix in _MIXES[:1] if is_stand_in else _MIXES:
            for number in _CLIENTS if mix == _MIXES[0] else _CLIENTS[-1:]:
                # Do not count the first run, which loads kernels and fills pools.
                run = partial(_run, clients[:number], address, mix, page_checksums=not is_stand_in)
                run(min(seconds, 1.0))
                before, started = cpu_seconds([process.pid]), time.monotonic()
                answers = run(seconds)
                wall = time.monotonic() - started
                seconds_of_cpu = cpu_seconds([process.pid]) - before
                raw_gb = sum(answer["raw_bytes"] for answer in answers) / 1e9
                entry = {
                    "encoder": encoder,
                    "table": mix,
                    "clients": number,
                    "gb_per_s": round(raw_gb / wall, 3),
                    "cores": round(seconds_of_cpu / wall, 2),
                    "cpu_s_per_gb": round(seconds_of_cpu / raw_gb, 3),
                    "memory_mb": round(_resident_bytes(process) / 1e6),
                    "file_mb": round(answers[0]["file_bytes"] / 1e6, 1),
                    "encoded_by": sorted({answer["encoder"] for answer in answers}),
                    "file_s": round(statistics.median(second for answer in answers for second in answer["seconds"]), 3),
                }
                print(entry, flush=True)
                yield entry


@contextmanager
def _clients(folder: Path, codec: str) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(max(_CLIENTS))]
    processes = [
        context.Process(target=_write_files, args=(theirs, folder, f"{codec}-{number}"), daemon=True)
        for number, (_, theirs) in enumerate(pairs)
    ]
    for process in processes:
        process.start()
    try:
        yield [ours for ours, _ in pairs]
    finally:
        for process in processes:
            process.kill()


def _run(
    clients: list[Connection], address: str, mix: str, seconds: float, *, page_checksums: bool
) -> list[dict[str, Any]]:
    for client in clients:
        client.send((address, mix, seconds, page_checksums))
    answers = [client.recv() for client in clients]
    if errors := [answer["error"] for answer in answers if "error" in answer]:
        raise RuntimeError(f"{len(errors)} of {len(answers)} clients failed: {errors[0]}")
    return answers


def _write_files(pipe: Connection, folder: Path, name: str) -> None:
    options = ParquetOptions(
        compression=Compression(codec=f"CODEC_{name.split('-')[0]}"), timestamps=TimestampType.TIMESTAMP_TYPE_MICROS
    )
    while True:
        address, mix, seconds, options.page_checksums = pipe.recv()
        table = pa.ipc.open_file(pa.memory_map(str(folder / mix))).read_all()
        took: list[float] = []
        try:
            with WriterClient(address) as client:
                ends = time.monotonic() + seconds
                while not took or time.monotonic() < ends:
                    started = time.monotonic()
                    with client.create(str(folder / name), table.schema, options) as file:
                        file.write(table)
                    took.append(time.monotonic() - started)
            receipt = file.receipt
            counts = {"raw_bytes": len(took) * table.nbytes, "file_bytes": receipt.file_bytes}
            pipe.send({**counts, "encoder": receipt.encoder, "seconds": took})
        except Exception as error:
            pipe.send({"error": f"{type(error).__name__}: {error}"})


def _store(table: pa.Table, path: Path) -> None:
    rows = max(1, table.num_rows * _BATCH_BYTES // table.nbytes)
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table, max_chunksize=rows)


def _resident_bytes(process: psutil.Process) -> int:
    return sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))


if __name__ == "__main__":
    main()
