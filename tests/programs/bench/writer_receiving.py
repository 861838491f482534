# SPDX-License-Identifier: Apache-2.0
"""`make bench-receiving`: CPU seconds that a writer uses for each GB of batches, by kind of thread.

The files are small and take little time to encode (no codec, columns with few distinct values), so receiving dominates.
Each client is a process that writes one file after the other into memory (/dev/shm). The results exclude the clients'
CPU time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import defaultdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.support.constants import NOTHING
from tests.support.writer import LocalWriter, with_receivers
from updraft.client.writer import WriterClient
from updraft.v1.write_pb2 import Compression, ParquetOptions

_SEED = 11
_COLUMNS = 8
_DISTINCT_VALUES = 12
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_ENCODER = "writer encode"
# Module that Python imports before the writer. It passes the names of Python's threads to the kernel, so that the
# benchmark can distinguish the threads' CPU times.
_NAMES_OF_THREADS = """
import threading

run = threading.Thread.run


def named_run(thread):
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write(thread.name[:15])
    run(thread)


threading.Thread.run = named_run
"""


def main() -> None:
    """Measure each case and write the results as JSON."""
    parser = argparse.ArgumentParser(prog="make bench-receiving", description=__doc__)
    parser.add_argument("--clients", type=int, default=2, help="files written at once (default: %(default)s)")
    parser.add_argument("--file-mb", type=int, default=256, help="raw size of a file (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a run (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each case (default: %(default)s)")
    parser.add_argument("--batch-kb", type=int, nargs="+", default=[4096], help="sizes of batches (default: 4096)")
    parser.add_argument("--transports", nargs="+", default=["tcp", "unix"], choices=["tcp", "unix"])
    parser.add_argument("--receivers", type=int, default=None, help="processes that receive (default: by the cores)")
    parser.add_argument("--output", type=Path, default=Path("build/bench/writer-receiving.json"))
    options = parser.parse_args()
    runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        (Path(folder) / "sitecustomize.py").write_text(_NAMES_OF_THREADS)
        os.environ["PYTHONPATH"] = folder
        _store(options.file_mb << 20, Path(folder) / "table")
        clients = [_Client(Path(folder), number) for number in range(options.clients)]
        constants = NOTHING if options.receivers is None else with_receivers(options.receivers)
        arguments = ["--encoder", "cpu", "--log-level", "warning", "--quota-bytes", str(1 << 30)]
        with LocalWriter(Path(folder), arguments=arguments, constants=constants) as writer:
            addresses = {"tcp": writer.tcp_address, "unix": f"unix://{writer.unix_socket}"}
            for repeat in range(options.repeat + 1):
                for transport in options.transports:
                    for batch_kb in options.batch_kb:
                        run = _run(writer, clients, addresses[transport], batch_kb << 10, options.seconds)
                        if repeat:
                            runs.setdefault((transport, batch_kb), []).append(run)
        for client in clients:
            client.process.kill()
    measured = [_summary(*case, of_case) for case, of_case in runs.items()]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(measured, indent=1) + "\n")
    for entry in measured:
        print(json.dumps(entry))


class _Client:
    """Client process that writes files on request."""

    def __init__(self, folder: Path, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_write_files, args=(theirs, folder, number), daemon=True)
        self.process.start()


def _write_files(pipe: Connection, folder: Path, number: int) -> None:
    options = ParquetOptions(compression=Compression(codec="CODEC_NONE"))
    table = pa.ipc.open_file(pa.memory_map(str(folder / "table"))).read_all()
    while True:
        address, batch_bytes, seconds = pipe.recv()
        files, ends = 0, time.monotonic() + seconds
        with WriterClient(address) as client:
            while time.monotonic() < ends:
                path = str(folder / f"file-{number}")
                with client.create(path, table.schema, options, max_batch_bytes=batch_bytes) as file:
                    file.write(table)
                files += 1
        pipe.send(files * table.nbytes)


def _run(writer: LocalWriter, clients: list[_Client], address: str, batch_bytes: int, seconds: float) -> dict[str, Any]:
    before, started = _thread_seconds(writer), time.monotonic()
    for client in clients:
        client.pipe.send((address, batch_bytes, seconds))
    raw_gb = sum(client.pipe.recv() for client in clients) / 1e9
    wall_seconds = time.monotonic() - started
    by_name: defaultdict[str, float] = defaultdict(float)
    for (name, thread), took in _thread_seconds(writer).items():
        by_name[name] += took - before.get((name, thread), 0.0)
    return {"gb_per_s": raw_gb / wall_seconds, **{name: took / raw_gb for name, took in by_name.items()}}


def _thread_seconds(writer: LocalWriter) -> dict[tuple[str, int], float]:
    """Return the CPU seconds of each thread of the writer's processes, by the thread's name and number."""
    found: dict[tuple[str, int], float] = {}
    for process in writer.members():
        role = "receiver" if "updraft_writer.receivers.process" in process.cmdline() else "writer"
        for thread in process.threads():
            try:
                stat = Path(f"/proc/{process.pid}/task/{thread.id}/stat").read_text()
            except FileNotFoundError:
                continue
            name, numbers = stat.partition("(")[2].rpartition(")")[0], stat.rpartition(")")[2].split()
            kind = name.partition("_")[0] if name.startswith(("encode", "store", "asyncio", "uvloop")) else name
            found[f"{role} {kind}", thread.id] = (int(numbers[11]) + int(numbers[12])) / _TICKS_PER_SECOND
    return found


def _summary(transport: str, batch_kb: int, runs: list[dict[str, Any]]) -> dict[str, Any]:
    names = sorted({name for run in runs for name in run if name != "gb_per_s"})
    outside = [sum(value for name, value in run.items() if name not in ("gb_per_s", _ENCODER)) for run in runs]
    medians = {name: statistics.median(run.get(name, 0.0) for run in runs) for name in names}
    return {
        "transport": transport,
        "batch_kb": batch_kb,
        "gb_per_s": round(statistics.median(run["gb_per_s"] for run in runs), 3),
        "outside_encoder_cpu_s_per_gb": round(statistics.median(outside), 3),
        "threads_cpu_s_per_gb": {name: round(median, 3) for name, median in medians.items() if median >= 0.001},
    }


def _store(raw_bytes: int, path: Path) -> None:
    choose = np.random.default_rng(_SEED)
    rows = raw_bytes // 8 // _COLUMNS
    columns = {f"c{column}": choose.integers(0, _DISTINCT_VALUES, rows) for column in range(_COLUMNS)}
    table = pa.table(columns)
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)


if __name__ == "__main__":
    main()
