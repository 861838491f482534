# SPDX-License-Identifier: Apache-2.0
"""Retired zygote: it has a successor, but its model processes still answer exchanges that have begun with them."""

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
from updraft_server.ipc.packet_codec import PacketError
from updraft_server.ipc.zygote_packets import MAX_PACKET_BYTES, Packet, ShowStack, decode, encode
from updraft_server.pool.zygote_models import ZygoteModels

# Request number of a question whose answer is not awaited.
_UNASKED = 0


class RetiredZygote:
    """Front's end of the connection. It ends with the zygote, which ends with its last worker."""

    def __init__(
        self, connection: socket.socket, models: ZygoteModels, on_end: Callable[["RetiredZygote"], None]
    ) -> None:
        """Take over a connection.

        Args:
            connection: Connection to the zygote.
            models: The zygote's model processes.
            on_end: Called when the zygote has gone away.
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
        """Last measurement of its processes."""
        return self._models.usage

    def measure(self) -> None:
        """Ask what the processes use; `usage` has the answer once the zygote has sent it."""
        self._measured = []
        self._send(MeasureModels(_UNASKED))

    async def stack(self, model: str) -> str | None:
        """Return the Python stacks of a process; None if the process is not this zygote's."""
        return await self._models.stack(model, lambda name: self._send(ShowStack(name)))

    def close(self) -> None:
        """Close the connection. Idempotent."""
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
        # Faults of its functions are ignored: new exchanges get newer code.
        for descriptor in descriptors:
            os.close(descriptor)

    def _take_usage(self, packet: MeasuredModels) -> None:
        self._measured.extend(map(ModelUsage.from_plain, packet.functions))
        if packet.are_last:
            self._models.usage = self._measured
        else:
            self._send(MeasureModels(_UNASKED, len(self._measured)))

    def _send(self, packet: Packet) -> None:
        # Do not wait for a zygote that is gone or busy.
        with suppress(OSError):
            self._connection.send(encode(packet))
