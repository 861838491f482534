# SPDX-License-Identifier: Apache-2.0
"""The file that tells scripts where a pool really listens and which processes it has."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from updraft_server.pool import Pool


class ReadyFile:
    """Written once the pool is ready and again when its processes change; a reader never sees half of it."""

    def __init__(self, path: Path, addresses: Mapping[str, str], pool: Pool) -> None:
        self._path = path
        self._addresses = addresses
        self._pool = pool
        self._written = ""

    def update(self) -> None:
        """Write the file if what it says has changed."""
        content = json.dumps(
            {
                **self._addresses,
                "supervisor": os.getppid(),
                "front": os.getpid(),
                "zygote": self._pool.zygote_pid,
                "workers": sorted(self._pool.worker_pids),
            },
            indent=2,
        )
        if content == self._written:
            return
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        partial.write_text(content)
        partial.replace(self._path)
        self._written = content
