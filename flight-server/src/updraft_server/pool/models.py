# SPDX-License-Identifier: Apache-2.0
"""Model processes of a pool: those of the current zygote, and those of retired ones with running exchanges."""

import functools
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence

from updraft_server.ipc.model_packets import ModelUsage
from updraft_server.pool.retired_zygote import RetiredZygote
from updraft_server.pool.worker_events import DroppedOutput, WorkerOutput
from updraft_server.pool.zygote_client import ModelPacket
from updraft_server.pool.zygote_models import FunctionKey, ZygoteModels


class PooledModels:
    """Model processes of all zygotes of a pool."""

    def __init__(
        self,
        lines_per_second: float,
        on_output: Callable[[WorkerOutput], None],
        on_drop: Callable[[DroppedOutput], None],
        on_fault: Callable[[], None],
    ) -> None:
        """Prepare to track model processes; the arguments are those of `ZygoteModels`."""
        self._make = functools.partial(ZygoteModels, lines_per_second, on_output, on_drop, on_fault)
        self._current = self._make()
        self._retired: list[RetiredZygote] = []

    @property
    def are_there(self) -> bool:
        """Whether the pool has batched functions, as far as is known."""
        return self._current.are_there or bool(self._retired)

    @property
    def usage(self) -> Sequence[ModelUsage]:
        """Last measurement of each batched function."""
        return _together(self._current.usage, (each for zygote in self._retired for each in zygote.usage))

    @property
    def faults(self) -> Mapping[FunctionKey, str]:
        """Why functions cannot be called; callable functions are left out."""
        return self._current.faults

    def take(self, packet: ModelPacket, descriptors: Sequence[int]) -> None:
        """Handle a packet from the zygote."""
        self._current.take(packet, descriptors)

    def measured(self, usage: Sequence[ModelUsage]) -> None:
        """Record the zygote's measurement, and ask retired zygotes for theirs, which `usage` shows the next time."""
        self._current.usage = usage
        for zygote in self._retired:
            zygote.measure()

    def lost(self) -> None:
        """Drop the processes of a zygote that has gone away."""
        self._current.lost()

    def retire(self, zygote: socket.socket) -> None:
        """Keep the processes of a zygote that serves only exchanges that have begun; `zygote` is a connection to it."""
        self._retired.append(RetiredZygote(zygote, self._current, self._retired.remove))
        self._current = self._make()

    async def stack(self, model: str, show_stack: Callable[[str], None]) -> str | None:
        """Return the Python stacks of a process; None if the process is unknown."""
        for zygote in self._retired:
            if (stack := await zygote.stack(model)) is not None:
                return stack
        return await self._current.stack(model, show_stack)

    def close(self) -> None:
        """Close the connections to all zygotes."""
        self._current.lost()
        for zygote in list(self._retired):
            zygote.close()


def _together(current: Sequence[ModelUsage], retired: Iterable[ModelUsage]) -> Sequence[ModelUsage]:
    """Add the processes of retired zygotes to those of the current one, all as retiring."""
    found = {(each.name, each.version): each for each in current}
    for each in retired:
        leaving = [replica._replace(state="retiring") for replica in each.replicas]
        if leaving:
            known = found.get((each.name, each.version), each._replace(replicas=()))
            found[each.name, each.version] = known._replace(replicas=[*known.replicas, *leaving])
    return list(found.values())
