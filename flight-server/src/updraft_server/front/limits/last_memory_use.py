# SPDX-License-Identifier: Apache-2.0
"""Inference of the function that most likely used up the memory when all workers are lost at once.

The kernel's OOM killer ends all workers together and leaves no process that could report the cause. The front therefore
infers the cause from the last measurement of the workers, and the error says so.
"""

from collections.abc import Mapping
from typing import NamedTuple

from updraft_server.ipc.worker_usage import WorkerUsage

# If workers used less than this share of the memory, something else has ended them, such as an eviction.
_LEAST_SHARE = 0.5


class _Held(NamedTuple):
    first_bytes: int
    """Memory at the first measurement of the current uninterrupted series."""
    last_bytes: int

    @property
    def grown_bytes(self) -> int:
        return self.last_bytes - self.first_bytes


class LastMemoryUse:
    """Memory that workers with an exchange used when they were last measured."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._were_short = False
        self._largest_grower = ""

    def measured(self, usage: Mapping[str, WorkerUsage], there_is_bytes: int) -> None:
        """Record a measurement. Ignore an empty one, because nothing can be measured once the workers are lost.

        Args:
            usage: Usage of all workers that have an exchange, by worker.
            there_is_bytes: Memory that the workers share.
        """
        if not usage:
            return
        self._held = {
            worker: _Held(self._held[worker].first_bytes if worker in self._held else used.own_bytes, used.own_bytes)
            for worker, used in usage.items()
        }
        self._were_short = sum(held.last_bytes for held in self._held.values()) > _LEAST_SHARE * there_is_bytes
        self._largest_grower = max(self._held, key=lambda worker: self._held[worker].grown_bytes)

    def is_blamed(self, worker: str) -> bool:
        """Return whether this worker, lost for an unknown reason, most likely brought down all workers."""
        return self._were_short and worker == self._largest_grower

    def inference(self, worker: str, function: str) -> str:
        """Return a hint for the error of an exchange whose worker was lost for an unknown reason; may be empty."""
        if not self._were_short or worker not in self._held:
            return ""
        if not self.is_blamed(worker):
            return " (inferred: the workers ran out of memory because of another exchange)"
        held = self._held[worker]
        return (
            f" (inferred: the workers ran out of memory, and the function {function} grew most, by "
            f"{held.grown_bytes} bytes to {held.last_bytes}: send smaller batches, or give the workers more memory)"
        )
