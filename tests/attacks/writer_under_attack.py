# SPDX-License-Identifier: Apache-2.0
"""Real writer with secrets, a neighbor's open file, and newcomers."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import grpc
import pyarrow as pa
import pyarrow.parquet as pq

from tests.attacks.outsiders import HANG_SECONDS, Outsider
from tests.support.certificates import Authority
from tests.support.constants import with_constants
from tests.support.waiting import until
from tests.support.writer import with_receivers
from updraft.client.writer import WriterClient

MIB = 1 << 20
QUOTA_BYTES = 64 * MIB
# A writer's memory in addition to its quota (gpu-writer/README.md), plus messages in transit that gRPC holds.
_BEYOND_BYTES = 700 * MIB
_SETTINGS = [
    f"--quota-bytes={QUOTA_BYTES}",
    "--max-open-files=32",
    "--client-silence-seconds=60",
]
_CONSTANTS = {
    "updraft.service.exchange.FIRST_MESSAGE_TIMEOUT_SECONDS": 2.0,
    "updraft.service.listeners.HANDSHAKE_TIMEOUT_SECONDS": 2.0,
    "updraft_writer.exchange.STALL_TIMEOUT_SECONDS": 2.0,
    "updraft_writer.quota.ADMISSION_TIMEOUT_SECONDS": 5.0,
}
_ROWS = pa.record_batch({"n": pa.array(range(1000), pa.int64())})


class WriterUnderAttack:
    """Writer that writes below one root, next to a directory that no client may write to."""

    def __init__(self, directory: Path, receivers: int) -> None:
        self.root, self.outside = directory / "root", directory / "outside"
        self.root.mkdir()
        self.outside.mkdir()
        self._log = directory / "log"
        self._ready = directory / "ready.json"
        self._token = secrets.token_hex(16)
        authority = Authority(directory / "certificates")
        identity = authority.identity("127.0.0.1")
        self._certificate = authority.certificate.read_bytes()
        tokens = directory / "tokens"
        tokens.write_text(self._token + "\n")
        constants = {**_CONSTANTS, **with_receivers(receivers)}
        command = [sys.executable, "-c", "from updraft_writer.cli import main; main()", "serve"]
        command += [f"--{name}=127.0.0.1:0" for name in ("listen", "admin-listen", "metrics-listen")]
        command += [f"--root={self.root}", f"--ready-file={self._ready}", f"--token-file={tokens}"]
        command += [f"--tls-certificate-file={identity.certificate}", f"--tls-key-file={identity.key}", *_SETTINGS]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stderr=log, env=with_constants(directory, constants))
        self._until("the writer is ready", self._ready.exists)
        self._serving = self._told["writer"]
        self._receivers = list(map(int, self.status()["receivers"]))
        assert len(self._receivers) == receivers
        credentials = grpc.ssl_channel_credentials(self._certificate)
        self._client = WriterClient(self._told["listen"], token=self._token, credentials=credentials)
        self._neighbour = self._client.create(str(self.root / "neighbour.parquet"), _ROWS.schema)
        self._neighbour.write(_ROWS)
        self._newcomers = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._process.kill()
        self._process.wait()

    @property
    def _told(self) -> dict[str, Any]:
        return dict(json.loads(self._ready.read_text()))

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        def happens() -> bool:
            assert self._process.poll() is None, self._log.read_text()
            return condition()

        until(what, happens)

    def outsider(self) -> Outsider:
        """Return a client that has the writer's token."""
        return Outsider(self._told["listen"], self._certificate, self._token)

    def status(self) -> dict[str, Any]:
        """Return the writer's status."""
        import urllib.request

        with urllib.request.urlopen(f"http://{self._told['metrics_listen']}/status.json", timeout=HANG_SECONDS) as page:
            return dict(json.load(page))

    def check_served(self) -> None:
        """Check that the same processes serve, the neighbor can add to its file, and a newcomer can write a file."""
        assert self._told["writer"] == self._serving
        assert list(map(int, self.status()["receivers"])) == self._receivers
        self._neighbour.write(_ROWS)
        self._newcomers += 1
        path = self.root / f"newcomer-{self._newcomers}.parquet"
        with self._client.create(str(path), _ROWS.schema) as file:
            file.write(_ROWS)
        assert pq.read_table(path).num_rows == _ROWS.num_rows
        path.unlink()

    def check_unharmed(self) -> None:
        """Check that the writer has released everything, and that no file is in the wrong place."""
        self.check_served()
        # The writer holds the neighbor's rows until the neighbor's row group is full.
        self._until("only the neighbour's file is open", lambda: self.status()["open_files"] == 1)
        self._until("no batch waits", lambda: not self.status()["batches_waiting"])
        held_bytes = self.status()["held_bytes"]
        assert held_bytes <= 2 * 8 * _ROWS.num_rows * 1000, self.status()
        assert self.status()["peak_bytes"] <= QUOTA_BYTES, self.status()
        assert not list(self.outside.iterdir())
        unfinished = [path for path in self.root.rglob("*.updraft") if path.is_file()]
        assert len(unfinished) == 1, unfinished
        for process in (self._serving, *self._receivers):
            assert _peak_bytes(process) < QUOTA_BYTES + _BEYOND_BYTES, (process, _peak_bytes(process))
        others = [line for line in self._log.read_bytes().splitlines() if not line.startswith(b"{")]
        assert not [line for line in others if not re.match(rb"[IWE]\d{4} |WARNING: ", line)], others


def _peak_bytes(process: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found
    return int(found[1]) * 1024
