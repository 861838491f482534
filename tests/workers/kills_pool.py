# SPDX-License-Identifier: Apache-2.0
"""Pool whose processes a test kills, and a check of what the pool still holds after the kill."""

from __future__ import annotations

import shutil
import tempfile
import urllib.error
from dataclasses import replace
from pathlib import Path
from typing import Self

import grpc
import psutil

from tests.faults.table.state import Held, held_by
from tests.faults.victims import is_whole
from tests.support.pool import NOTES, LocalPool
from tests.support.waiting import until
from updraft_server.segments_directory import segments_directory

# Each of an executor's two tasks may need a worker that reads a data source and a worker that writes to one.
WORKERS = 4


class KilledPool:
    """Context manager around a pool whose exchanges pass large batches through segments."""

    def __init__(self) -> None:
        # Directories of pytest are too long for the path of a Unix socket.
        self._runtime = Path(tempfile.mkdtemp(prefix="updraft-kills-"))
        arguments = ["--fresh-workers", "0", "--runtime-directory", str(self._runtime / "pool")]
        self.pool = LocalPool(workers=WORKERS, notes=NOTES, arguments=arguments)
        self._before: Held | None = None

    def __enter__(self) -> Self:
        self.pool.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.stop()
        shutil.rmtree(self._runtime, ignore_errors=True)

    def remember(self) -> None:
        """Wait until the pool is at rest, and record the most that the pool has ever held at rest.

        A zygote holds fewer descriptors for a worker if another zygote has forked this worker.
        """

        def at_rest() -> Held | None:
            held = held_by(self.pool, self._runtime)
            resting = dict.fromkeys(held.counters, 0) | {"idle": WORKERS}
            return held if held.counters == resting else None

        held, before = until("the pool is at rest", at_rest), self._before
        if before is not None:
            most = {role: max(count, before.descriptors[role]) for role, count in held.descriptors.items()}
            held = replace(held, descriptors=most)
        self._before = held

    def excess(self) -> list[str]:
        """Return what the pool holds in addition to the record, or an error text if the pool is not whole."""
        assert self._before is not None
        if not is_whole(self.pool, WORKERS):
            return ["the pool is not whole"]
        try:
            return [*held_by(self.pool, self._runtime).excess(self._before), *self._segments()]
        except (psutil.Error, grpc.RpcError, urllib.error.URLError, KeyError, FileNotFoundError) as error:
            return [repr(error)]

    def _segments(self) -> list[str]:
        """Return the segments that the front still holds, as files or in its memory."""
        directory, front = segments_directory(None, self.pool.unix_socket), self.pool.front()
        assert directory is not None
        assert front is not None
        mapped = [mapping.path for mapping in front.memory_maps() if directory.name in mapping.path]
        return [*map(str, directory.iterdir()), *mapped]
