# SPDX-License-Identifier: Apache-2.0
"""Front's record of a worker process: its socket, its output, and what the zygote reports about it."""

import asyncio
import dataclasses
import enum
import math
import os
import signal
import socket
from collections.abc import Callable

from updraft_server.ipc.frames import HEADER_BYTES, FrameError, FrameKind, decode_header
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.ipc.zygote_packets import Kill, ShowStack
from updraft_server.pool.bindings import Bound
from updraft_server.pool.leases import Owner, PoolError
from updraft_server.pool.worker_events import DroppedOutput, LogContext, WorkerDeath, WorkerOutput
from updraft_server.pool.worker_output import OutputReader, Outputs, StackReader
from updraft_server.pool.zygote_client import ForkedWorker

# The socket shows at once that an idle worker has ended. The zygote, unless it is dead, reports the status a moment
# later.
_STATUS_TIMEOUT_SECONDS = 1.0


class WorkerState(enum.Enum):
    """States of a worker: STARTING -> FRESH -> IDLE <-> BUSY <-> SPARE <-> IDLE, FRESH -> BUSY; DEAD from any state."""

    STARTING = "starting"
    FRESH = "fresh"
    IDLE = "idle"
    BUSY = "busy"
    SPARE = "spare"
    DEAD = "dead"


_BETWEEN_EXCHANGES = frozenset({WorkerState.FRESH, WorkerState.IDLE, WorkerState.SPARE})

# Causes of a worker's end: a signal, its own exit, or the pool. With "leftover", the pool ended the worker because an
# exchange had left something behind.
EXIT_REASONS = ("signal", "exit", "pool", "leftover")


class PooledWorker:
    """Forked worker and all its descriptors."""

    def __init__(
        self,
        forked: ForkedWorker,
        outputs: Outputs,
        on_end: Callable[["PooledWorker"], None],
        send: Callable[[Kill | ShowStack], None],
        generation: int,
    ) -> None:
        self.id = forked.id
        self.pid = forked.pid
        """Process id on the zygote's side: for people to read, never to act on."""
        self.generation = generation
        """Generation of the functions that the worker has loaded: `Hello.generation`."""
        self.usage: WorkerUsage | None = None
        """Last measurement; None before the first measurement."""
        self.was_killed = False
        """Whether the pool has killed the worker."""
        self.computes_at_rest = False
        """Whether the worker has used CPU between two exchanges."""
        self.stopped_seconds = -math.inf
        """Time of the event loop at which the pool last ordered the worker to stop."""
        self.tenant = ""
        """Tenant for which the worker's last exchange was counted; empty for a registered function."""
        self.has_leftovers = False
        """Whether the pool ended the worker because of what an exchange left behind."""
        self._state = WorkerState.STARTING
        self.bound = Bound(None, 0)
        """Binding of the worker, and its last use."""
        self._context = LogContext()
        """Log context of the worker's exchange, for the worker's output."""
        self._loop = asyncio.get_running_loop()
        self.death: asyncio.Future[WorkerDeath] = self._loop.create_future()
        self.socket = socket.socket(fileno=forked.socket_fd)
        self.socket.setblocking(False)  # noqa: FBT003
        self._outputs = outputs
        self._output = OutputReader(forked.output_fd, outputs.lines_per_second, self._take_line, self._note_drop)
        self._on_end = on_end
        self._send = send
        self._stack = StackReader(forked.stack_fd)
        self._pidfd = forked.pidfd
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._status_timer: asyncio.TimerHandle | None = None

    @property
    def state(self) -> WorkerState:
        """State of the worker in the pool."""
        return self._state

    @state.setter
    def state(self, state: WorkerState) -> None:
        """Set the state. Between exchanges, watch the socket, which becomes readable only when the worker ends."""
        before, self._state = self._state, state
        if self.socket.fileno() < 0:
            return
        if before in _BETWEEN_EXCHANGES:
            self._loop.remove_reader(self.socket.fileno())
        if state in _BETWEEN_EXCHANGES:
            self._loop.add_reader(self.socket.fileno(), self._stirred)

    @property
    def may_call_models(self) -> bool:
        """Whether the worker can reach model processes; a worker that serves a session cannot reach them."""
        return self.owner is None

    @property
    def owner(self) -> Owner | None:
        """Owner of the session that the worker serves; None before its first exchange and for registered functions."""
        return self.bound.binding.owner if self.bound.binding is not None else None

    @property
    def is_the_operators(self) -> bool:
        """Whether the worker stays however long it is idle, because it serves no session and is not a spare."""
        return self.owner is None and self.state is not WorkerState.SPARE

    def works_for(self, context: LogContext) -> None:
        """Attribute the worker's later output to the exchange of `context`; an empty context means no exchange."""
        self._output.next_exchange()
        self._context = context

    async def ready(self) -> None:
        """Wait for the worker's READY frame; raises PoolError if it dies first or sends something else."""
        if self.state is WorkerState.STARTING:
            self._loop.add_reader(self.socket.fileno(), self._read_ready)
        try:
            await self._ready
        finally:
            if self.socket.fileno() >= 0:
                self._loop.remove_reader(self.socket.fileno())

    def kill(self) -> None:
        """Make the zygote kill the worker. The zygote then also kills the processes that the worker started."""
        self.was_killed = True
        self._send(Kill(self.id))

    def go_on(self) -> bool:
        """Continue the worker. Return False if this process cannot signal the worker."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)
        except OSError:
            # The zygote is in another PID namespace, or the worker has ended.
            return False
        return True

    async def stack(self) -> str:
        """Return the Python stacks of all threads; empty if the worker does not answer, for example while stopped."""
        return await self._stack.read(lambda: self._send(ShowStack(self.id)))

    def reason_of(self, death: WorkerDeath) -> str:
        """Return which of EXIT_REASONS applies. A crash is the reason even if the pool killed the worker afterwards."""
        if self.was_killed and death.signal in (None, signal.SIGKILL):
            return "leftover" if self.has_leftovers else "pool"
        return "exit" if death.signal is None else "signal"

    def exited(self, death: WorkerDeath) -> None:
        """Record how the worker ended."""
        if self.death.done():
            return
        if self._status_timer is not None:
            self._status_timer.cancel()
        self._output.close()
        self._stack.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        if not self._ready.done():
            self._ready.set_exception(PoolError(f"the worker {death} before it was ready"))
            self._ready.exception()  # retrieved, because there may be no waiter
        self.death.set_result(dataclasses.replace(death, stack=self._output.crash.text))
        self._end()

    def close_socket(self) -> None:
        """Close the socket, which ends a living worker. Idempotent."""
        number = self.socket.fileno()
        if number < 0:
            return
        # If the loop still watched the descriptor, the peer would not see end of file.
        self._loop.remove_reader(number)
        self._loop.remove_writer(number)
        self.socket.close()

    def _take_line(self, line: str) -> None:
        self._outputs.on_line(WorkerOutput(self.id, line, self._context))

    def _note_drop(self, lines: int, size: int) -> None:
        self._outputs.on_drop(DroppedOutput(self.id, lines, size, self._context))

    def _read_ready(self) -> None:
        data = b""
        try:
            # A frame this small is never delivered in parts.
            data = self.socket.recv(HEADER_BYTES)
            if decode_header(data).kind is not FrameKind.READY:
                raise FrameError("its first frame is not READY")
        except BlockingIOError:
            return
        except (OSError, FrameError) as error:
            self._loop.remove_reader(self.socket.fileno())
            if not data:
                # The worker has ended, and the zygote reports its exit status soon.
                self._ended()
            elif not self._ready.done():
                self._ready.set_exception(PoolError(f"the worker did not start: {error}"))
            return
        if not self._ready.done():
            self._ready.set_result(None)

    def _stirred(self) -> None:
        """Kill an idle worker whose socket has become readable: it has ended, or is unusable."""
        self._send(Kill(self.id))
        self._ended()

    def _ended(self) -> None:
        self._end()
        if not self.death.done() and self._status_timer is None:
            self._status_timer = self._loop.call_later(_STATUS_TIMEOUT_SECONDS, self.exited, WorkerDeath())

    def _end(self) -> None:
        if self.state is not WorkerState.DEAD:
            self.state = WorkerState.DEAD
            self._on_end(self)
