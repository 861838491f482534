# SPDX-License-Identifier: Apache-2.0
"""Sweeps of a /dev/shm that all workers of a pool share.

Functions may leave millions of files there. A sweep of a few files takes less time than a fork, so the zygote's loop
sweeps for a short time. If files are left, a helper process continues.
"""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from updraft_server.linux.hostile_trees import remove_unused_files
from updraft_server.zygote.helpers import Helper, Watch
from updraft_server.zygote.workers import WorkerEnd

# The zygote's loop sweeps for this long before it starts a helper.
_LOOP_SECONDS = 0.01
# A front gives the place of an ended worker to another owner, so the zygote reports the exit after the sweep. The
# zygote delays a report at most this long, because a function that leaves many files must not keep all other owners
# waiting.
_MOST_SECONDS = 1.0
_HELPER_SECONDS = 600.0
# At shutdown, the zygote sweeps for longer, because no helper runs and no exchange waits for the zygote.
_LAST_SECONDS = 5.0


class SharedMemory:
    """Shared /dev/shm, and worker exits that wait for its sweep."""

    def __init__(
        self, directory: Path, watch: Watch, unwatch: Callable[[int], None], close_others: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._helper = Helper(
            "updraft-sweeper",
            lambda: remove_unused_files(directory, within_seconds=_HELPER_SECONDS),
            watch,
            unwatch,
            close_others,
            writable=[str(directory)],
        )
        self._loop_seconds = _LOOP_SECONDS
        self._waiting: list[tuple[WorkerEnd, float]] = []
        """Exits that are not reported yet, each with the monotonic time by which it has to be reported."""

    @property
    def processes(self) -> frozenset[int]:
        """Process id of the helper, if it runs. The zygote must not kill this process as an orphan."""
        return self._helper.processes

    @property
    def wait_seconds(self) -> float:
        """Time that the zygote's loop may wait for events before it calls `swept` again."""
        return max(0.0, self._waiting[0][1] - time.monotonic()) if self._waiting else math.inf

    def sweep(self) -> None:
        """Remove files that no process uses. If this takes long, a helper removes the remaining files."""
        if not remove_unused_files(self._directory, within_seconds=self._loop_seconds):
            self._helper.run()

    def swept(self, ends: Sequence[WorkerEnd]) -> Sequence[WorkerEnd]:
        """Sweep if workers have ended; return all exits to report now, including exits that have waited for a sweep."""
        if ends:
            self.sweep()
            latest_seconds = time.monotonic() + _MOST_SECONDS
            self._waiting += [(end, latest_seconds) for end in ends]
        now = time.monotonic()
        count = sum(latest <= now for _, latest in self._waiting) if self._helper.is_running else len(self._waiting)
        told, self._waiting = self._waiting[:count], self._waiting[count:]
        return [end for end, _ in told]

    def stop(self) -> None:
        """Stop the helper for good; reports of workers' exits no longer wait for the helper."""
        self._helper.stop()
        self._loop_seconds = _LAST_SECONDS
