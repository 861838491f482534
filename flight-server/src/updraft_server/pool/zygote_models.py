# SPDX-License-Identifier: Apache-2.0
"""Model processes of a zygote as the front knows them: their output, their usage, and which functions are at fault.

The zygote starts, measures and ends them; nothing here acts on them.
"""

import os
from collections.abc import Callable, Sequence

import structlog

from updraft_server.ipc.model_packets import MODEL_DESCRIPTORS, ModelEnded, ModelFault, ModelStarted, ModelUsage
from updraft_server.pool.stack_reader import StackReader
from updraft_server.pool.worker_events import DroppedOutput, WorkerOutput
from updraft_server.pool.worker_output import OutputReader
from updraft_server.pool.zygote_client import ModelPacket

_log = structlog.get_logger(__name__)

FunctionKey = tuple[str, str]
"""Name and version of a function."""


class _Process:
    """Pipes of one model process."""

    def __init__(
        self,
        started: ModelStarted,
        descriptors: Sequence[int],
        lines_per_second: float,
        on_output: Callable[[WorkerOutput], None],
        on_drop: Callable[[DroppedOutput], None],
    ) -> None:
        output, stack = descriptors
        context = {"function": started.name, "version": started.version}
        self.context = context
        self.stack = StackReader(stack)
        self.output = OutputReader(
            output,
            lines_per_second,
            lambda line: on_output(WorkerOutput(started.model, line, context)),
            lambda lines, size: on_drop(DroppedOutput(started.model, lines, size, context)),
        )

    def close(self) -> None:
        self.output.close()
        self.stack.close()


class ZygoteModels:
    """Model processes of the current zygote and its dead predecessors."""

    def __init__(
        self,
        lines_per_second: float,
        on_output: Callable[[WorkerOutput], None],
        on_drop: Callable[[DroppedOutput], None],
        on_fault: Callable[[], None],
    ) -> None:
        """Prepare to track model processes.

        Args:
            lines_per_second: Lines that each process may print, in the long run.
            on_output: Called for each line.
            on_drop: Called for output beyond the limit.
            on_fault: Called when `faults` has changed.
        """
        self.usage: Sequence[ModelUsage] = ()
        """Last measurement of each batched function."""
        self.faults: dict[FunctionKey, str] = {}
        """Why functions cannot be called; callable functions are left out."""
        self._lines_per_second = lines_per_second
        self._on_output = on_output
        self._on_drop = on_drop
        self._on_fault = on_fault
        self._processes: dict[str, _Process] = {}

    @property
    def are_there(self) -> bool:
        """Whether the pool has batched functions, as far as is known."""
        return bool(self._processes or self.usage or self.faults)

    def take(self, packet: ModelPacket, descriptors: Sequence[int]) -> None:
        """Handle a packet from the zygote."""
        match packet:
            case ModelStarted() if len(descriptors) == MODEL_DESCRIPTORS:
                self._processes[packet.model] = _Process(
                    packet, descriptors, self._lines_per_second, self._on_output, self._on_drop
                )
                _log.info("model process started", model=packet.model, function=packet.name, pid=packet.pid)
            case ModelStarted():
                for descriptor in descriptors:
                    os.close(descriptor)
            case ModelEnded():
                self._end(packet)
            case ModelFault():
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

    def _end(self, packet: ModelEnded) -> None:
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
