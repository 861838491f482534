# SPDX-License-Identifier: Apache-2.0
"""Zygote's record of a model process."""

import dataclasses
import enum
import os
import signal
import socket
from contextlib import suppress
from typing import NamedTuple

from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.ipc.worker_usage import ProcessorTime
from updraft_server.worker.model.control import Attach, Retire, RunAlone, State, encode
from updraft_server.worker.model.watchdog import Watchdog


class ReplicaState(enum.Enum):
    """States of a model process: LOADING -> READY -> RETIRING. It may die in any of them."""

    LOADING = "loading"
    READY = "ready"
    RETIRING = "retiring"


class ForkedModel(NamedTuple):
    """New model process. The receiver closes the descriptors."""

    pid: int
    pidfd: int
    control: socket.socket
    watchdog: Watchdog
    shared_memory: int | None = None
    """Descriptor of the process's own /dev/shm; None if it has none."""


@dataclasses.dataclass(eq=False, slots=True)
class Replica:
    """One model process, and what it has reported."""

    id: str
    """Name, unique among the processes of this zygote."""
    number: int
    """Index among the replicas of its function, from 0."""
    process: ForkedModel
    load_deadline_seconds: float
    state: ReplicaState = ReplicaState.LOADING
    ready_seconds: float | None = None
    """Time when the process had loaded its function; None before that."""
    attached: int = 0
    """Connections that the zygote has sent to the process."""
    told: State = State(0, 0, 0.0, BatchRecord().to_plain())  # noqa: RUF009 - a frozen value
    """Last report of the process."""
    has_suspect: bool = False
    """Whether the function is processing suspect rows. Such rows may have killed another process, so they are not
    joined with other rows."""
    memory_bytes: int = 0
    """Memory at the last measurement."""
    processor: ProcessorTime = dataclasses.field(default_factory=ProcessorTime)
    """CPU time since the last batch."""
    reason: str = ""
    """Why the process ends, worded like `ModelEnded.how`; empty if unknown until the process is reaped."""

    def __post_init__(self) -> None:
        """Make the control socket non-blocking: the zygote must not wait for a process that works on a batch."""
        self.process.control.settimeout(0)

    @property
    def connections(self) -> int:
        """Number of open connections, including those that the process has not reported yet."""
        return self.told.connections + self.attached - self.told.attached

    @property
    def batches(self) -> int:
        """Number of batches that the function has finished, according to the last report."""
        return sum(BatchRecord.from_plain(self.told.record).batches.counts)

    def batch_processor_seconds(self, processor_seconds: float) -> float:
        """Return the CPU time used for the current batch, given the CPU time used since the process was forked.

        While the process loads the function or has no connection, it has no batch, so the result is 0.
        """
        if self.state is ReplicaState.LOADING or not self.connections:
            self.processor = ProcessorTime()
            return 0.0
        return self.processor.measured(self.batches, processor_seconds)

    def attach(self, connection: socket.socket) -> bool:
        """Send a connection to the process. Return False if too many packets are unread."""
        try:
            socket.send_fds(self.process.control, [encode(Attach())], [connection.fileno()])
        except OSError:
            return False
        self.attached += 1
        return True

    def run_alone(self, until_seconds: float) -> None:
        """Tell the process to join no rows until `until_seconds`. Do nothing if too many packets are unread."""
        with suppress(OSError):
            self.process.control.send(encode(RunAlone(until_seconds)))

    def retire(self) -> bool:
        """Tell the process to answer the requests it has read, then end. Return False if the packet cannot be sent."""
        try:
            self.process.control.send(encode(Retire()))
        except OSError:
            return False
        self.state = ReplicaState.RETIRING
        return True

    def kill(self, reason: str) -> None:
        """Kill the process. Record the reason, unless one is already recorded."""
        self.reason = self.reason or reason
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal to the process. Do nothing if it has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.process.pidfd, number)

    def close(self) -> None:
        """Close the descriptors of a process that has ended."""
        self.process.control.close()
        self.process.watchdog.close()
        os.close(self.process.pidfd)
        if self.process.shared_memory is not None:
            os.close(self.process.shared_memory)
