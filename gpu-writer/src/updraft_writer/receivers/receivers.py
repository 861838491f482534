# SPDX-License-Identifier: Apache-2.0
"""Receivers of a writer. The writer's process starts, watches and replaces them.

The listeners see the receivers as one gRPC server. If a receiver dies or hangs, its calls end as if their clients had
disconnected, and a new receiver replaces it. The files of other receivers' clients are not affected.
"""

import asyncio
import itertools
import json
import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import grpc
import structlog

from updraft.service.addresses import TcpAddress
from updraft.service.allocator import clean_freed_memory
from updraft.service.child import CRASHES, WINDOW_SECONDS, Child, Crashes, describe_exit
from updraft.service.early_reads import allocated_bytes
from updraft.service.heartbeat import INTERVAL_SECONDS
from updraft.service.lifecycle import StartError
from updraft.service.listeners import ListenError, check_free
from updraft_writer.futures import ignore_failure, on_thread
from updraft_writer.receivers.frames import Kind, StartUp
from updraft_writer.receivers.relay import Relay
from updraft_writer.receivers.shared_memory import SharedMemory
from updraft_writer.settings import ServeSettings

# When stopping, kill receivers that still run this long after the grace period.
_STOP_MARGIN_SECONDS = 2.0
# If a writer's process is killed, its receivers end too, but may occupy the port for this long.
_LEAVING_SECONDS = 5.0
_LOOK_SECONDS = 0.1
# Treat a receiver that does not serve this long after its start as hung. On a loaded machine, a start takes a few
# seconds.
START_SECONDS = 60.0
# Give up after this many failed starts in a row, unless another receiver serves.
_MOST_FAILED_STARTS = 3
_RETRY_SECONDS = 1.0
# Return idle pages to the system if no batch has needed them for this long.
_UNUSED_SECONDS = 10
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_log = structlog.get_logger(__name__)


class Receivers:
    """Receivers as one server for Flight (`updraft.service.listeners.FlightServer`)."""

    def __init__(self, settings: ServeSettings, memory: SharedMemory, number: int) -> None:
        self._settings = settings
        self.memory = memory
        """Memory for the bodies of batches."""
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._number = number
        self._running: dict[int, _Receiver] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._claim: socket.socket | None = None
        self._crashes = defaultdict[int, Crashes](Crashes)
        self._is_stopping = False
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with an error if a receiver dies again and again, or if no receiver serves and none can be started."""
        self.failed.add_done_callback(ignore_failure)
        self.on_restart: Callable[[], None] = lambda: None
        """Callback, called for each receiver that replaces another receiver."""

    @property
    def open_calls(self) -> dict[int, int]:
        """Number of open calls of each receiver that serves, by its process id."""
        serving = [receiver for _, receiver in sorted(self._running.items()) if receiver.is_serving]
        return {receiver.child.pid: receiver.relay.open_calls for receiver in serving}

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Serve these methods."""
        self._handlers += handlers

    async def listen(self) -> dict[str, str]:
        """Start the receivers; return the addresses on which they listen. Raise ListenError or StartError."""
        if (address := self._settings.listen_address) is not None:
            self._claim = await self._claimed(address)
        receivers = [await self._start(index) for index in range(self._number)]
        addresses: dict[str, str] = {}
        for listening in await asyncio.gather(*(receiver.serves() for receiver in receivers)):
            addresses.update(listening)
        self._keepers = [asyncio.create_task(self._keep(index)) for index in range(self._number)]
        self._keepers.append(asyncio.create_task(self._watch()))
        for keeper in self._keepers:
            keeper.add_done_callback(self._ended)
        return addresses

    async def _claimed(self, address: TcpAddress) -> socket.socket:
        """Return a socket that keeps other writers off the port; raise ListenError if any service listens on the port.

        Receivers can share a port, so they would not fail if another service already listened on it.
        """
        ends_seconds = time.monotonic() + _LEAVING_SECONDS
        while True:
            try:
                with ExitStack() as stack:
                    claim = stack.enter_context(_claim(address))
                    check_free(address)
                    stack.pop_all()
                    return claim
            except ListenError:
                if time.monotonic() > ends_seconds:
                    raise
            await asyncio.sleep(_LOOK_SECONDS)

    async def stop(self, grace: float | None) -> None:
        """Stop the receivers; end open calls after `grace` seconds, or at once if it is None."""
        if self._is_stopping:
            return
        self._is_stopping = True
        # Stop the keepers first. Otherwise they would replace the receivers that end.
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        running = list(self._running.values())
        for receiver in running:
            receiver.relay.link.send(Kind.STOP, 0, json.dumps(grace).encode())
        if running:
            ends = [asyncio.ensure_future(receiver.gone.wait()) for receiver in running]
            await asyncio.wait(ends, timeout=(grace or 0.0) + _STOP_MARGIN_SECONDS)
        for receiver in running:
            await receiver.end()
        if self._claim is not None:
            self._claim.close()
        self.memory.close()

    def clean_freed_memory(self) -> None:
        """Have all processes return freed memory to the system."""
        clean_freed_memory()
        for receiver in self._running.values():
            receiver.relay.link.send(Kind.CLEAN)

    def allocated_bytes(self) -> int:
        """Return the bytes allocated by this process, plus the bytes allocated by receivers since their start."""
        return allocated_bytes() + sum(receiver.grown_bytes() for receiver in self._running.values())

    async def _start(self, index: int) -> "_Receiver":
        # Receivers cannot share a Unix socket, so one receiver serves it.
        settings = self._settings if index == 0 else self._settings.model_copy(update={"listen_unix": None})
        try:
            receiver = self._running[index] = _Receiver(settings, self.memory, self._handlers)
        except OSError as error:
            raise StartError(f"cannot start a receiver: {error.strerror}") from error
        await receiver.connect()
        return receiver

    async def _keep(self, index: int) -> None:
        failed_starts = 0
        while True:
            receiver, failure = self._running[index], None
            try:
                await receiver.serves()
                failed_starts = 0
            except StartError as error:
                failure = error
            await receiver.gone.wait()
            status = describe_exit(await receiver.end())
            if failure is not None:
                failed_starts += 1
                if failed_starts >= _MOST_FAILED_STARTS and not self.open_calls:
                    raise failure
                _log.error("a receiver failed to start: trying again", error=str(failure), retry_seconds=_RETRY_SECONDS)
                await asyncio.sleep(_RETRY_SECONDS)
            elif self._crashes[index].are_too_many():
                raise StartError(f"a receiver {status}, the {CRASHES}th death within {WINDOW_SECONDS:g} seconds")
            else:
                _log.error(f"a receiver {status}: its clients have to send their files again, and another one starts")
            self.on_restart()
            await self._start(index)

    def _ended(self, keeper: asyncio.Task[None]) -> None:
        if keeper.cancelled() or (error := keeper.exception()) is None:
            return
        _log.error("receivers are no longer replaced", error=str(error))
        if not self.failed.done():
            self.failed.set_exception(error)

    async def _watch(self) -> None:
        for second in itertools.count(1):
            await asyncio.sleep(INTERVAL_SECONDS)
            if second % _UNUSED_SECONDS == 0:
                self.memory.drop_unused()
            for receiver in self._running.values():
                if not receiver.gone.is_set() and receiver.child.is_stuck():
                    _log.error("a receiver hangs: killing it", receiver=receiver.child.pid)
                    receiver.child.kill()


class _Receiver:
    """Process of one receiver, and its calls."""

    def __init__(
        self, settings: ServeSettings, memory: SharedMemory, handlers: Sequence[grpc.GenericRpcHandler]
    ) -> None:
        self.gone = asyncio.Event()
        # Addresses of the receiver, or the error that kept the receiver from starting.
        self._listening: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._listening.add_done_callback(ignore_failure)
        self.relay = Relay(handlers, memory, self._hear, self._lost)
        self._idle_bytes = 0
        ours, theirs = socket.socketpair()
        self._connection = ours
        with theirs:
            start_up = StartUp(settings.model_dump_json(), theirs.fileno(), memory.descriptor)
            self.child = Child(
                "updraft_writer.receivers.process",
                {**os.environ, **start_up.environment},
                (theirs.fileno(), memory.descriptor),
            )

    async def connect(self) -> None:
        """Connect to the started process."""
        self._connection.settimeout(0)
        await asyncio.get_running_loop().create_unix_connection(lambda: self.relay.link, sock=self._connection)

    @property
    def is_serving(self) -> bool:
        """Whether clients can connect to the process."""
        is_listening = self._listening.done() and self._listening.exception() is None
        return is_listening and not self.gone.is_set()

    async def serves(self) -> dict[str, str]:
        """Wait until the process serves, and return its addresses; raise ListenError or StartError.

        Kill the process if it does not serve within START_SECONDS.
        """
        try:
            async with asyncio.timeout(START_SECONDS):
                return await asyncio.shield(self._listening)
        except TimeoutError:
            self.child.kill()
            raise StartError(f"a receiver did not serve within {START_SECONDS:g} seconds") from None

    async def end(self) -> int:
        """Kill the process unless it has ended, then end its calls; return the exit code."""
        code = await on_thread(self.child.end)
        # Drop calls only after the process has ended, because a running process may write into the calls' blocks.
        self.relay.drop_calls()
        return code

    def grown_bytes(self) -> int:
        """Return the memory that the process has allocated since it began to serve, without the shared memory."""
        return max(0, self._resident_bytes() - self._idle_bytes) if self._idle_bytes else 0

    def _resident_bytes(self) -> int:
        try:
            _, resident, shared, *_ = Path(f"/proc/{self.child.pid}/statm").read_text().split()
        except OSError:
            return 0
        return (int(resident) - int(shared)) * _PAGE_BYTES

    def _hear(self, kind: Kind, payload: bytes) -> None:
        self._idle_bytes = self._resident_bytes()
        if kind is Kind.LISTENING:
            self._listening.set_result(json.loads(payload))
        else:
            self._listening.set_exception(ListenError(payload.decode()))

    def _lost(self) -> None:
        if not self._listening.done():
            self._listening.set_exception(StartError("a receiver ended before it served: the log has the reason"))
        self.gone.set()


def _claim(address: TcpAddress) -> socket.socket:
    """Return a socket that keeps other writers off the port of any address while it is open; raise ListenError.

    Otherwise the receivers of two writers that start at the same time could share a port. The socket's name, like the
    port, belongs to the network namespace. The kernel frees the name when the process ends.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0updraft-writer {address.port}")
    except OSError as error:
        claim.close()
        raise ListenError(f"cannot listen on {address}: {error.strerror}: choose another port") from error
    return claim
