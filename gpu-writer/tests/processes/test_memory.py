# SPDX-License-Identifier: Apache-2.0
"""Resident memory of a writer with slow storage or slow readers stays within the limits of gpu-writer/README.md."""

import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from updraft.client.writer import WriterClient
from updraft.v1.write_pb2 import Codec, Compression, OrcOptions, ParquetOptions

MIB = 1 << 20
QUOTA_BYTES = 48 * MIB
# The size of the connector's batches.
BATCH_BYTES = 4 * MIB
BYTES_PER_SECOND = 80 * MIB
TOTAL_BYTES = 4 * QUOTA_BYTES
# The constants of gpu-writer/README.md.
CONSTANT_BYTES = 64 * MIB
BYTES_PER_FILE = {"parquet": MIB, "orc": 2 * MIB + MIB // 2}
NONE = Compression(codec=Codec.CODEC_NONE)
OPTIONS: dict[str, Any] = {"parquet": ParquetOptions(compression=NONE), "orc": OrcOptions(compression=NONE)}


class SlowWriter:
    """Writer process, and its peak memory since it was warm."""

    def __init__(self, directory: Path, kind: str, slow: str) -> None:
        ready = directory / "ready.json"
        script = Path(__file__).parents[1] / "slow_writer.py"
        self.root = directory
        self.process = subprocess.Popen([sys.executable, str(script), str(directory), str(ready), str(QUOTA_BYTES)])
        while not ready.exists():
            assert self.process.poll() is None
            time.sleep(0.01)
        told = json.loads(ready.read_text())
        self.address, self._metrics = told["listen"], told["metrics_listen"]
        self._resident = psutil.Process(self.process.pid).memory_info
        self.kind, self.slow = kind, slow
        self.options = OPTIONS[kind]
        self.base_bytes = self.peak_bytes = 0

    def resident_bytes(self) -> int:
        return int(self._resident().rss)

    def watch(self, until: threading.Event) -> None:
        while not until.wait(0.02):
            self.peak_bytes = max(self.peak_bytes, self.resident_bytes())

    def metric(self, name: str) -> float:
        with urlopen(f"http://{self._metrics}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


_PAIRS = [("parquet", "storage"), ("orc", "reader")]
_OTHER_PAIRS = [pytest.param(pair, marks=pytest.mark.campaign) for pair in (("parquet", "reader"), ("orc", "storage"))]


@pytest.fixture(scope="module", params=[*_PAIRS, *_OTHER_PAIRS], ids="-".join)
def slow_writer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlowWriter]:
    """Start a warm writer for few and then many files; what the few leave behind counts against the many."""
    kind, slow = request.param
    writer = SlowWriter(tmp_path_factory.mktemp(kind), kind, slow)
    try:
        write(writer, "warm-up", noise(BATCH_BYTES), 2)
        writer.base_bytes = writer.resident_bytes()
        yield writer
    finally:
        writer.process.kill()
        writer.process.wait()


def noise(size_bytes: int) -> pa.Table:
    """Return numbers that no dictionary or codec makes smaller."""
    with open("/dev/urandom", "rb") as source:  # noqa: PTH123 - a device, not a file
        data = source.read(size_bytes)
    values = pa.Array.from_buffers(pa.int64(), size_bytes // 8, [None, pa.py_buffer(data)])
    return pa.Table.from_arrays([values], names=["n"])


class SlowReader(io.RawIOBase):
    """Slow destination of returned bytes; all readers share one line."""

    line = threading.Lock()

    def write(self, piece: Any) -> int:
        with self.line:
            time.sleep(len(piece) / BYTES_PER_SECOND)
        return len(piece)


def write(writer: SlowWriter, name: str, data: pa.Table, rounds: int, into: Any = None) -> None:
    path = str(writer.root / name)
    with (
        WriterClient(writer.address) as client,
        client.create(path, data.schema, writer.options, into=into, max_batch_bytes=BATCH_BYTES) as file,
    ):
        for _ in range(rounds):
            file.write(data)


def do_at_once(writer: SlowWriter, writes: Sequence[Callable[[], None]]) -> None:
    """Do the writes while the writer's memory is watched."""
    done = threading.Event()
    watching = threading.Thread(target=writer.watch, args=(done,))
    producers = [threading.Thread(target=step) for step in writes]
    watching.start()
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join()
    done.set()
    watching.join()


@pytest.mark.parametrize("files", [4, 64])
def test_resident_memory_stays_within_quota_and_constant(slow_writer: SlowWriter, files: int) -> None:
    kind, slow = slow_writer.kind, slow_writer.slow
    data, rounds = noise(BATCH_BYTES), -(-TOTAL_BYTES // files // BATCH_BYTES)
    into = [SlowReader() if slow == "reader" else None for _ in range(files)]
    do_at_once(
        slow_writer,
        [partial(write, slow_writer, f"{files}-{index}.file", data, rounds, into[index]) for index in range(files)],
    )
    rise_bytes = slow_writer.peak_bytes - slow_writer.base_bytes
    assert rise_bytes <= QUOTA_BYTES + CONSTANT_BYTES + files * BYTES_PER_FILE[kind]
    open_files_bytes = files * BYTES_PER_FILE[kind] if kind == "orc" else 0
    assert slow_writer.metric("updraft_writer_peak_bytes") <= QUOTA_BYTES + open_files_bytes
    assert slow_writer.metric("updraft_writer_held_bytes") == 0
    published = list(slow_writer.root.glob(f"{files}-*.file"))
    assert len(published) == (files if slow == "storage" else 0)
    if published and kind == "parquet":
        assert pq.read_metadata(published[0]).num_rows == rounds * BATCH_BYTES // 8
