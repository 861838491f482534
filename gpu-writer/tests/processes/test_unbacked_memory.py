# SPDX-License-Identifier: Apache-2.0
"""Resident memory of a writer whose clients send batches without bytes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from running_writer import RawExchange, command, wait_for

from updraft.v1.exchange_pb2 import ErrorKind
from updraft.v1.write_pb2 import WriteReplyMetadata

MIB = 1 << 20
QUOTA_BYTES = 64 * MIB
# The constant of gpu-writer/README.md.
CONSTANT_BYTES = 64 * MIB
VALUES_PER_ROW = 10_000


class WarmWriter:
    """Writer in its own process, which has written a file."""

    def __init__(self, root: Path) -> None:
        script, ready = Path(__file__).parents[1] / "slow_writer.py", root / "ready.json"
        self.root = root
        self.process = subprocess.Popen([sys.executable, str(script), str(root), str(ready), str(QUOTA_BYTES)])
        wait_for(lambda: ready.exists() or self.process.poll() is not None, "the start of the writer")
        self.address = json.loads(ready.read_text())["listen"]
        assert self.send("warm-up", 10).HasField("receipt")
        self.base_bytes = self.peak_bytes

    @property
    def peak_bytes(self) -> int:
        """Peak of the resident memory."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

    def send(self, name: str, rows: int) -> WriteReplyMetadata:
        """Send a batch of fixed-size lists of null, which has no bytes, and return the last reply."""
        values = pa.nulls(rows * VALUES_PER_ROW)
        lists = pa.Array.from_buffers(pa.list_(pa.null(), VALUES_PER_ROW), rows, [None], children=[values])
        batch = pa.record_batch({"x": lists})
        with RawExchange(self.address, batch.schema, command(self.root / name)) as exchange:
            exchange.ask(1024)
            while not exchange.next_reply().credit:
                pass
            exchange.batch(1, batch)
            exchange.finish(1, rows)
            exchange.half_close()
            return exchange.last_reply()


@pytest.fixture
def warm_writer(tmp_path: Path) -> Iterator[WarmWriter]:
    writer = WarmWriter(tmp_path)
    try:
        yield writer
    finally:
        writer.process.kill()
        writer.process.wait()


def test_batches_of_no_bytes_stay_within_the_quota_or_are_refused(warm_writer: WarmWriter) -> None:
    refused = warm_writer.send("refused.parquet", 6000)
    assert refused.error.kind == ErrorKind.ERROR_KIND_LIMIT
    assert warm_writer.send("too-large.parquet", 120).error.kind == ErrorKind.ERROR_KIND_LIMIT
    with ThreadPoolExecutor(8) as clients:
        replies = list(clients.map(lambda index: warm_writer.send(f"{index}.parquet", 100), range(8)))
    assert [reply.receipt.rows for reply in replies] == 8 * [100]
    assert warm_writer.peak_bytes - warm_writer.base_bytes <= QUOTA_BYTES + CONSTANT_BYTES
