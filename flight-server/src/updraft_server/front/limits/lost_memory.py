# SPDX-License-Identifier: Apache-2.0
"""Which function has most likely taken the memory when all workers are lost at once, as by the kernel's OOM killer.

Nobody is left to tell then, so it is inferred from what workers were last found to use, and said to be so.
"""

from collections.abc import Mapping
from typing import NamedTuple

from updraft_server.ipc.worker_usage import WorkerUsage

# With less in use, something else has ended them: an eviction, a node that went away.
_LEAST_SHARE = 0.5


class _Held(NamedTuple):
    first_bytes: int
    """When the worker was first measured in a row."""
    last_bytes: int

    @property
    def grown_bytes(self) -> int:
        return self.last_bytes - self.first_bytes


class LostMemory:
    """What the workers that have exchanges were last found to use."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._were_short = False
        self._largest_grower = ""

    def measured(self, usage: Mapping[str, WorkerUsage], there_is_bytes: int) -> None:
        """Take a measurement; an empty one is none, since nothing can be measured any more once workers are lost.

        Args:
            usage: By worker, of all that have exchanges.
            there_is_bytes: The memory that they share.
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
        """Whether this worker, which is lost and nobody knows how, is taken to have brought down all."""
        return self._were_short and worker == self._largest_grower

    def inference(self, worker: str, function: str) -> str:
        """What to add to the error of an exchange whose worker is lost and nobody knows how; empty without a hint."""
        if not self._were_short or worker not in self._held:
            return ""
        if not self.is_blamed(worker):
            return " (inferred: the workers ran out of memory because of another exchange)"
        held = self._held[worker]
        return (
            f" (inferred: the workers ran out of memory, and the function {function} grew most, by "
            f"{held.grown_bytes} bytes to {held.last_bytes}: send smaller batches, or give the workers more memory)"
        )
