# SPDX-License-Identifier: Apache-2.0
"""Writer on this machine: `updraft-writer serve`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.constants import NOTHING
from tests.support.flight import action
from tests.support.paths import WRITER
from tests.support.service import LocalService
from tests.support.waiting import until


def with_receivers(number: int) -> dict[str, object]:
    """Return constants that give a writer this many receivers on any number of cores; 0 lets it receive by itself."""
    values = {"LEAST_CORES": 1 if number else 1 << 20, "LEAST_RECEIVERS": number, "MOST_RECEIVERS": number}
    return {f"updraft_writer.receivers.{name}": value for name, value in values.items()}


class LocalWriter(LocalService):
    """Writer that may write below `root`."""

    def __init__(self, root: Path, *, arguments: Sequence[str] = (), constants: Mapping[str, object] = NOTHING):
        super().__init__("writer", WRITER, ["--root", str(root), *arguments], constants)
        self.unix_socket = self.directory / "writer.sock"
        self._command += ["--listen-unix", str(self.unix_socket)]

    @property
    def unix_endpoint(self) -> str:
        """Value of spark.updraft.write.endpoint over the Unix socket."""
        return f"grpc+unix://{self.unix_socket}"

    def status(self) -> dict[str, Any]:
        """Return the writer's status."""
        return dict(json.loads(action(self.tcp_address, "updraft.writer_status")))

    def becomes_empty(self) -> None:
        """Wait until no file is open and nothing is reserved."""

        def empty() -> bool:
            status = self.status()
            return not any(status[name] for name in ("open_files", "held_bytes", "reservations", "batches_waiting"))

        until("the writer holds nothing", empty)
