# SPDX-License-Identifier: Apache-2.0
"""A zygote that has a successor, and whose model processes answer the exchanges that have begun with them."""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from updraft_server.ipc.model_packets import (
    MODEL_DESCRIPTORS,
    MeasuredModels,
    MeasureModels,
    ModelEnded,
    ModelStarted,
    ModelUsage,
)
from updraft_server.ipc.zygote_packets import MAX_PACKET_BYTES, Packet, PacketError, ShowStack, decode, encode
from updraft_server.pool.zygote_models import ZygoteModels

# The answer to a question that nobody waits for.
_UNASKED = 0


class RetiredZygote:
    """The front's end of the connection; it ends with the zygote, which ends with its last worker."""

    def __init__(
        self, connection: socket.socket, models: ZygoteModels, on_end: Callable[["RetiredZygote"], None]
    ) -> None:
        """Take over a connection.

        Args:
            connection: To the zygote.
            models: Its processes.
            on_end: Hears that it has gone away.
        """
        self._connection = connection
        self._models = models
        self._on_end = on_end
        self._measured: list[ModelUsage] = []
        self._loop = asyncio.get_running_loop()
        connection.settimeout(0)
        self._loop.add_reader(connection.fileno(), self._readable)

    @property
    def usage(self) -> Sequence[ModelUsage]:
        """Of its processes, when they were measured last."""
        return self._models.usage

    def measure(self) -> None:
        """Ask what the processes use; `usage` has it once the zygote has answered."""
        self._measured = []
        self._send(MeasureModels(_UNASKED))

    async def stack(self, model: str) -> str | None:
        """Where the Python of a process is; None where it is not this zygote's."""
        return await self._models.stack(model, lambda name: self._send(ShowStack(name)))

    def close(self) -> None:
        """Let go. Idempotent."""
        if self._connection.fileno() < 0:
            return
        self._loop.remove_reader(self._connection.fileno())
        self._connection.close()
        self._models.lost()
        self._on_end(self)

    def _readable(self) -> None:
        descriptors: list[int] = []
        try:
            data, descriptors, _, _ = socket.recv_fds(self._connection, MAX_PACKET_BYTES, MODEL_DESCRIPTORS)
            packet = decode(data) if data else None
        except BlockingIOError:
            return
        except (OSError, PacketError):
            packet = None
        match packet:
            case ModelStarted() | ModelEnded():
                self._models.take(packet, descriptors)
                return
            case MeasuredModels():
                self._take_usage(packet)
            case None:
                self.close()
        # Its functions' faults are those of code that new exchanges do not get.
        for descriptor in descriptors:
            os.close(descriptor)

    def _take_usage(self, packet: MeasuredModels) -> None:
        self._measured.extend(map(ModelUsage.from_plain, packet.functions))
        if packet.are_last:
            self._models.usage = self._measured
        else:
            self._send(MeasureModels(_UNASKED, len(self._measured)))

    def _send(self, packet: Packet) -> None:
        # One that is gone or busy is not waited for.
        with suppress(OSError):
            self._connection.send(encode(packet))
