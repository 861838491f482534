# SPDX-License-Identifier: Apache-2.0
"""Front's records of a pool's model processes: processes of the current zygote, and processes of retired zygotes.

A retired zygote has a successor, but its model processes still answer exchanges that began with them. Zygotes start,
measure and end the processes. This module holds the output and usage of the processes, and the faults of functions.
"""

import asyncio
import functools
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import structlog

from updraft_server.ipc import model_packets
from updraft_server.ipc.packet_codec import PacketError
from updraft_server.ipc.zygote_packets import MAX_PACKET_BYTES, Packet, ShowStack, decode, encode
from updraft_server.pool.worker_events import DroppedOutput, LogContext, WorkerOutput
from updraft_server.pool.worker_output import OutputReader, Outputs, StackReader
from updraft_server.pool.zygote_client import ModelPacket

_log = structlog.get_logger(__name__)

FunctionKey = tuple[str, str]
"""Name and version of a function."""

# Request number of a question whose answer is not awaited.
_UNASKED = 0
_MEASUREMENT_SECONDS = 2.0


class _Process:
    """Pipes of one model process."""

    def __init__(self, started: model_packets.ModelStarted, descriptors: Sequence[int], outputs: Outputs) -> None:
        output, stack = descriptors
        context = LogContext(function=started.name, version=started.version)
        self.context = context
        self.stack = StackReader(stack)
        self.output = OutputReader(
            output,
            outputs.lines_per_second,
            lambda line: outputs.on_line(WorkerOutput(started.model, line, context)),
            lambda lines, size: outputs.on_drop(DroppedOutput(started.model, lines, size, context)),
        )

    def close(self) -> None:
        self.output.close()
        self.stack.close()


class ZygoteModels:
    """Model processes of the current zygote and its dead predecessors."""

    def __init__(self, outputs: Outputs, on_fault: Callable[[], None]) -> None:
        """Prepare to track model processes.

        Args:
            outputs: Receives the lines that the processes print.
            on_fault: Called when `faults` has changed.
        """
        self.usage: Sequence[model_packets.ModelUsage] = ()
        """Last measurement of each batched function."""
        self.faults: dict[FunctionKey, str] = {}
        """Why functions cannot be called; callable functions are left out."""
        self._outputs = outputs
        self._on_fault = on_fault
        self._processes: dict[str, _Process] = {}

    @property
    def are_there(self) -> bool:
        """Whether the pool has batched functions, as far as is known."""
        return bool(self._processes or self.usage or self.faults)

    def take(self, packet: ModelPacket, descriptors: Sequence[int]) -> None:
        """Handle a packet from the zygote."""
        match packet:
            case model_packets.ModelStarted() if len(descriptors) == model_packets.MODEL_DESCRIPTORS:
                self._processes[packet.model] = _Process(packet, descriptors, self._outputs)
                _log.info("model process started", model=packet.model, function=packet.name, pid=packet.pid)
            case model_packets.ModelStarted():
                for descriptor in descriptors:
                    os.close(descriptor)
            case model_packets.ModelEnded():
                self._end(packet)
            case model_packets.ModelFault():
                self._set_fault((packet.name, packet.version), packet.fault)

    def lost(self) -> None:
        """Drop the processes of a zygote that has gone away."""
        for process in self._processes.values():
            process.close()
        self._processes.clear()
        self.usage = ()
        self.faults.clear()

    async def stack(self, model: str, show_stack: Callable[[str], None]) -> str | None:
        """Return the Python stacks of a process; None if the process is unknown."""
        process = self._processes.get(model)
        return await process.stack.read(lambda: show_stack(model)) if process is not None else None

    def _end(self, packet: model_packets.ModelEnded) -> None:
        process = self._processes.pop(packet.model, None)
        if process is None:
            return
        process.close()
        log = _log.info if packet.is_expected else _log.error
        crash = {"stack": process.output.crash.text} if process.output.crash.text else {}
        log("model process ended", model=packet.model, how=packet.how, **process.context, **crash)

    def _set_fault(self, function: FunctionKey, fault: str) -> None:
        name, version = function
        if fault:
            self.faults[function] = fault
            _log.error("function is unhealthy", function=name, version=version, reason=fault)
        else:
            self.faults.pop(function, None)
            _log.info("function is healthy again", function=name, version=version)
        self._on_fault()


class RetiredZygote:
    """Front's end of the connection to a retired zygote. Connection and zygote end after the zygote's last worker."""

    def __init__(
        self, connection: socket.socket, models: ZygoteModels, on_end: Callable[["RetiredZygote"], None]
    ) -> None:
        """Take over a connection.

        Args:
            connection: Connection to the zygote.
            models: The zygote's model processes.
            on_end: Called when the zygote has ended.
        """
        self._connection = connection
        self.models = models
        self._on_end = on_end
        self._measured: list[model_packets.ModelUsage] = []
        self._loop = asyncio.get_running_loop()
        connection.settimeout(0)
        self._loop.add_reader(connection.fileno(), self._readable)

    def measure(self) -> None:
        """Request the usage of the processes; `models.usage` holds the answer once the zygote has sent it."""
        self._measured = []
        self._send(model_packets.MeasureModels(_UNASKED))

    async def stack(self, model: str) -> str | None:
        """Return the Python stacks of a process; None if the process belongs to another zygote."""
        return await self.models.stack(model, lambda name: self._send(ShowStack(name)))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._connection.fileno() < 0:
            return
        self._loop.remove_reader(self._connection.fileno())
        self._connection.close()
        self.models.lost()
        self._on_end(self)

    def _readable(self) -> None:
        descriptors: list[int] = []
        try:
            data, descriptors, _, _ = socket.recv_fds(
                self._connection, MAX_PACKET_BYTES, model_packets.MODEL_DESCRIPTORS
            )
            packet = decode(data) if data else None
        except BlockingIOError:
            return
        except (OSError, PacketError):
            packet = None
        match packet:
            case model_packets.ModelStarted() | model_packets.ModelEnded():
                self.models.take(packet, descriptors)
                return
            case model_packets.MeasuredModels():
                self._take_usage(packet)
            case None:
                self.close()
        # Ignore faults that a retired zygote reports, because new exchanges run newer code.
        for descriptor in descriptors:
            os.close(descriptor)

    def _take_usage(self, packet: model_packets.MeasuredModels) -> None:
        self._measured.extend(map(model_packets.ModelUsage.from_plain, packet.functions))
        if packet.are_last:
            self.models.usage = self._measured
        else:
            self._send(model_packets.MeasureModels(_UNASKED, len(self._measured)))

    def _send(self, packet: Packet) -> None:
        # Do not wait for a zygote that has ended or is busy.
        with suppress(OSError):
            self._connection.send(encode(packet))


class PooledModels:
    """Model processes of all zygotes of a pool."""

    def __init__(self, outputs: Outputs, on_fault: Callable[[], None]) -> None:
        """Prepare to track model processes; the arguments are those of `ZygoteModels`."""
        self._make = functools.partial(ZygoteModels, outputs, on_fault)
        self._current = self._make()
        self._retired: list[RetiredZygote] = []

    @property
    def are_there(self) -> bool:
        """Whether the pool has batched functions, as far as is known."""
        return self._current.are_there or bool(self._retired)

    @property
    def usage(self) -> Sequence[model_packets.ModelUsage]:
        """Last measurement of each batched function."""
        return _together(self._current.usage, (each for zygote in self._retired for each in zygote.models.usage))

    @property
    def faults(self) -> Mapping[FunctionKey, str]:
        """Why functions cannot be called; callable functions are left out."""
        return self._current.faults

    def take(self, packet: ModelPacket, descriptors: Sequence[int]) -> None:
        """Handle a packet from the zygote."""
        self._current.take(packet, descriptors)

    async def keep_measuring(self, measure: Callable[[], Awaitable[object]]) -> None:
        """Call `measure` again and again, as long as the pool has batched functions."""
        while True:
            await asyncio.sleep(_MEASUREMENT_SECONDS)
            if self.are_there:
                await measure()

    def measured(self, usage: Sequence[model_packets.ModelUsage]) -> None:
        """Record the zygote's measurement, and ask retired zygotes to measure; `usage` includes their answers later."""
        self._current.usage = usage
        for zygote in self._retired:
            zygote.measure()

    def lost(self) -> None:
        """Drop the processes of a zygote that has gone away."""
        self._current.lost()

    def retire(self, zygote: socket.socket) -> None:
        """Keep the processes of a retired zygote for exchanges that have begun; `zygote` is the connection to it."""
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


def _together(
    current: Sequence[model_packets.ModelUsage], retired: Iterable[model_packets.ModelUsage]
) -> Sequence[model_packets.ModelUsage]:
    """Add the processes of retired zygotes, shown as retiring, to the processes of the current zygote."""
    found = {(each.name, each.version): each for each in current}
    for each in retired:
        leaving = [replica._replace(state="retiring") for replica in each.replicas]
        if leaving:
            known = found.get((each.name, each.version), each._replace(replicas=()))
            found[each.name, each.version] = known._replace(replicas=[*known.replicas, *leaving])
    return list(found.values())
