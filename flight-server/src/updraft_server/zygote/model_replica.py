# SPDX-License-Identifier: Apache-2.0
"""A model process as the zygote holds it."""

import dataclasses
import enum
import os
import signal
import socket
from contextlib import suppress
from typing import NamedTuple

from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.linux.processor_time import ProcessorTime
from updraft_server.worker.model.control import Attach, Retire, State, encode
from updraft_server.worker.model.watchdog import Watchdog


class ReplicaState(enum.Enum):
    """LOADING -> READY -> RETIRING; a death ends each of them."""

    LOADING = "loading"
    READY = "ready"
    RETIRING = "retiring"


class ForkedModel(NamedTuple):
    """A new model process; the receiver closes the descriptors."""

    pid: int
    pidfd: int
    control: socket.socket
    watchdog: Watchdog
    shared_memory: int | None = None
    """A descriptor of its /dev/shm; None where it has none of its own."""


@dataclasses.dataclass(eq=False, slots=True)
class Replica:
    """One process, and what it has told."""

    id: str
    """Its name, which no other process of this zygote has."""
    number: int
    """Which of its function's replicas it is, from 0."""
    process: ForkedModel
    load_deadline_seconds: float
    state: ReplicaState = ReplicaState.LOADING
    ready_seconds: float | None = None
    """When it had loaded its function."""
    attached: int = 0
    """Connections that it was brought."""
    told: State = State(0, 0, 0.0, BatchRecord().to_plain())  # noqa: RUF009 - a frozen value
    """What it has told last."""
    has_suspect: bool = False
    """Whether its function works on suspect rows alone: rows that may have ended another process."""
    memory_bytes: int = 0
    """When it was measured last."""
    processor: ProcessorTime = dataclasses.field(default_factory=ProcessorTime)
    """What it has used since the last batch."""
    reason: str = ""
    """Why it was ended from outside, as `how` of its end; empty where it was not."""

    def __post_init__(self) -> None:
        """The zygote waits for no process: one that works on a batch reads nothing meanwhile."""
        self.process.control.settimeout(0)

    @property
    def connections(self) -> int:
        """Open ones, those included that it has not told of yet."""
        return self.told.connections + self.attached - self.told.attached

    @property
    def batches(self) -> int:
        """Those that its function has worked on and come back from, as far as it has told."""
        return sum(BatchRecord.from_plain(self.told.record).batches.counts)

    def batch_processor_seconds(self, processor_seconds: float) -> float:
        """CPU time that it has used for the batch that its function works on, of what it has used since it was forked.

        There is no batch while it loads the function, or has no connection, whatever its threads do meanwhile.
        """
        if self.state is ReplicaState.LOADING or not self.connections:
            self.processor = ProcessorTime()
            return 0.0
        return self.processor.measured(self.batches, processor_seconds)

    def attach(self, connection: socket.socket) -> bool:
        """Bring it a connection; False where it takes none now, as it has read too little of what it was sent."""
        try:
            socket.send_fds(self.process.control, [encode(Attach())], [connection.fileno()])
        except OSError:
            return False
        self.attached += 1
        return True

    def retire(self) -> bool:
        """Let it answer what it has read, and end; False where it cannot be told now."""
        try:
            self.process.control.send(encode(Retire()))
        except OSError:
            return False
        self.state = ReplicaState.RETIRING
        return True

    def kill(self, reason: str) -> None:
        """End it now."""
        self.reason = self.reason or reason
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send it a signal; one that has ended is no mistake."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.process.pidfd, number)

    def close(self) -> None:
        """It has ended."""
        self.process.control.close()
        self.process.watchdog.close()
        os.close(self.process.pidfd)
        if self.process.shared_memory is not None:
            os.close(self.process.shared_memory)
