# SPDX-License-Identifier: Apache-2.0
"""Front's connection to the zygote: forks, kills and measures on demand, and receives exits as they happen."""

import asyncio
import contextlib
import itertools
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import structlog

from updraft.v1.control_pb2 import FunctionDescription
from updraft_server.ipc import model_packets
from updraft_server.ipc import zygote_packets as packets
from updraft_server.ipc.function_list import decode_functions, joined
from updraft_server.ipc.packet_codec import PacketError
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.pool.leases import PoolError
from updraft_server.pool.zygote_source import ZygoteSource

ModelPacket = model_packets.ModelStarted | model_packets.ModelEnded | model_packets.ModelFault

_log = structlog.get_logger(__name__)

_RECONNECT_SECONDS = 0.05
# A front that cannot reach the workers' side logs this after _PATIENCE_SECONDS, and then every _COMPLAINT_SECONDS. A
# supervisor that gives up because no zygote can run has logged its reason before the front's first log line.
_PATIENCE_SECONDS = 1.0
_COMPLAINT_SECONDS = 10.0
# Request number of the zygote's hello, which the zygote sends unasked.
_GREETING = 0


class ZygoteError(PoolError):
    """Raised when the zygote is missing, goes away, or cannot fork."""


class ZygoteLostError(ZygoteError):
    """Raised if there is no zygote, or if the zygote goes away before it answers."""

    def __init__(self) -> None:
        super().__init__("the zygote has gone away")


class ForkedWorker(NamedTuple):
    """New worker process and its descriptors; the receiver closes them."""

    id: str
    pid: int
    """Process id on the zygote's side: for people to read, never to act on."""
    socket_fd: int
    output_fd: int
    stack_fd: int
    pidfd: int
    """Descriptor for signals, which the kernel refuses if the front is in another PID namespace; -1 if missing."""

    def close(self) -> None:
        """Close the descriptors. The worker ends by itself when its socket is closed."""
        for descriptor in (self.socket_fd, self.output_fd, self.stack_fd, self.pidfd):
            if descriptor >= 0:
                os.close(descriptor)


class ZygoteClient:
    """Connection to the current zygote, and later to its successors. Used from one event loop."""

    def __init__(
        self,
        zygotes: ZygoteSource,
        on_exit: Callable[[packets.Exited], None],
        on_lost: Callable[[], None],
        on_model: Callable[[ModelPacket, Sequence[int]], None],
        on_retirement: Callable[[socket.socket], None],
        on_refusal: Callable[[], None] = lambda: None,
        on_going_on: Callable[[str], None] = lambda _worker: None,
    ) -> None:
        """Create the client; `connect` makes the connection.

        Args:
            zygotes: Source of connections.
            on_exit: Called for each worker that has ended.
            on_lost: Called when the connection has ended.
            on_model: Called for packets about model processes, with the packets' descriptors; the callee closes the
                descriptors.
            on_retirement: Called when the zygote has a successor, with another connection to the old zygote; the callee
                closes this connection.
            on_refusal: Called when a reload was refused.
            on_going_on: Called with the id of a stopped worker that something else has continued.
        """
        self.hello: packets.Hello | None = None
        """Hello of the zygote; None while there is no connection."""
        self.functions: Sequence[FunctionDescription] = ()
        """Functions of the last zygote that has said hello."""
        self.reload_fault = ""
        """Why the last reload was refused; empty after a successful reload."""
        self.refused_reloads = 0
        """Number of refused reloads. The number distinguishes two refusals for the same reason."""
        self.trouble = ""
        """Reason for the lack of a connection; empty while connected."""
        self._greeting: packets.Hello | None = None
        """Incomplete greeting received so far."""
        self._has_retired = False
        """Whether the last connected zygote has retired in favour of a successor."""
        self._zygotes = zygotes
        self._on_exit = on_exit
        self._on_lost = on_lost
        self._on_model = on_model
        self._on_retirement = on_retirement
        self._on_refusal = on_refusal
        self._on_going_on = on_going_on
        self._loop = asyncio.get_running_loop()
        self._loading_seconds = self._loop.time()
        """Last time when a zygote was still loading."""
        self._socket: socket.socket
        self._connection = contextlib.ExitStack()
        """Ends the connection when closed."""
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._requests = itertools.count(_GREETING + 1)
        self._unsent: deque[bytes] = deque()

    @property
    def seconds_since_loading(self) -> float:
        """Time since a zygote was last seen loading; 0 while a zygote loads."""
        is_loading = self.hello is None and _GREETING in self._answers
        return 0.0 if is_loading else self._loop.time() - self._loading_seconds

    async def connect(self) -> packets.Hello:
        """Retry until a zygote has loaded and says hello."""
        next_complaint_seconds = self._loop.time() + _PATIENCE_SECONDS
        while self.hello is None:
            try:
                self.hello = await self._greeted()
            except ZygoteError as error:
                self.trouble = str(error)
                if self._loop.time() >= next_complaint_seconds:
                    next_complaint_seconds = self._loop.time() + _COMPLAINT_SECONDS
                    _log.warning("the workers' side is unreachable: retrying", reason=self.trouble)
                await asyncio.sleep(_RECONNECT_SECONDS)
        if self.trouble:
            self.trouble = ""
            _log.info("the workers' side is back")
        return self.hello

    async def _greeted(self) -> packets.Hello:
        """Connect to a zygote and return its hello; raises ZygoteError."""
        with contextlib.ExitStack() as connection:
            try:
                self._socket = await self._zygotes.next()
            except OSError as error:
                raise ZygoteError(f"cannot reach the zygote: {error.strerror or error}") from error
            connection.enter_context(self._socket)
            self._socket.settimeout(0)
            self._has_retired = False
            # Create this before adding the reader, because the hello may have arrived already.
            greeting = self._answers[_GREETING] = self._loop.create_future()
            connection.callback(self._greeting_ended)
            self._loop.add_reader(self._socket.fileno(), self._readable)
            connection.callback(self._loop.remove_reader, self._socket.fileno())
            connection.callback(self._loop.remove_writer, self._socket.fileno())
            while not (await asyncio.wait([greeting], timeout=_COMPLAINT_SECONDS))[0]:
                # Keep the connection, because each zygote is handed over only once. The supervisor ends a zygote that
                # hangs.
                self.trouble = "the zygote is still loading what workers start with: see the log of the workers' side"
                _log.warning("the workers' side is not ready: waiting", reason=self.trouble)
            hello: packets.Hello = greeting.result()
            if self._has_retired:
                # This zygote took longer to load than its successor, so its hello and its retirement arrived together.
                raise ZygoteLostError()
            self._greeting_ended()
            self._connection = connection.pop_all()
            return hello

    def _greeting_ended(self) -> None:
        if self._answers.pop(_GREETING, None) is not None:
            self._loading_seconds = self._loop.time()

    async def fork(self) -> ForkedWorker:
        """Fork a worker; raises ZygoteError. The caller limits the wait."""
        forked: ForkedWorker = await self._ask(packets.Fork(next(self._requests)))
        return forked

    def claim(self, workers: Sequence[str]) -> None:
        """Claim these workers of an earlier zygote; the zygote reports the exit of each worker that is gone."""
        for some in _parts(workers):
            self.send(packets.Claim(some))

    async def measure(self, workers: Sequence[str]) -> Mapping[str, WorkerUsage]:
        """Return what these workers use, without ended workers; raises ZygoteError. The caller limits the wait."""
        usage: dict[str, WorkerUsage] = {}
        for some in _parts(workers):
            measured: packets.Measured = await self._ask(packets.Measure(next(self._requests), some))
            usage.update({worker: WorkerUsage(*fields) for worker, fields in measured.usage.items()})
        return usage

    async def measure_models(self) -> Sequence[model_packets.ModelUsage]:
        """Return the usage and the work of each batched function's model processes; raises ZygoteError.

        The caller limits the wait.
        """
        usage: list[model_packets.ModelUsage] = []
        while True:
            measured: model_packets.MeasuredModels = await self._ask(
                model_packets.MeasureModels(next(self._requests), len(usage))
            )
            usage.extend(map(model_packets.ModelUsage.from_plain, measured.functions))
            if measured.are_last:
                return usage

    async def _ask(self, packet: packets.Fork | packets.Measure | model_packets.MeasureModels) -> Any:
        if self.hello is None:
            raise ZygoteLostError()
        self.send(packet)
        return await self._answer(packet.request)

    async def _answer(self, request: int) -> Any:
        answer = self._answers[request] = self._loop.create_future()
        try:
            return await answer
        except asyncio.CancelledError:
            # The answer may have arrived just before the cancellation.
            if not answer.cancelled() and not answer.exception() and isinstance(answer.result(), ForkedWorker):
                answer.result().close()
            raise
        finally:
            self._answers.pop(request, None)

    def send(self, packet: packets.Packet) -> None:
        """Send a packet without waiting for an answer. Do nothing if there is no connection.

        The only reply to a Kill is the exit of the worker. The caller repeats Kill and Continue after the next
        `connect`.
        """
        if self.hello is None:
            return
        self._unsent.append(packets.encode(packet))
        if len(self._unsent) == 1:
            self._send_unsent()

    def _send_unsent(self) -> None:
        """Send waiting packets. They wait while the zygote does not read. The supervisor ends a zygote that hangs."""
        while self._unsent:
            try:
                self._socket.send(self._unsent[0])
            except BlockingIOError:
                self._loop.add_writer(self._socket.fileno(), self._send_unsent)
                return
            except OSError:
                # The reader notices the end of file.
                break
            self._unsent.popleft()
        self._unsent.clear()
        self._loop.remove_writer(self._socket.fileno())

    def close(self) -> None:
        """Close the connection, which makes the zygote end the workers that belong to this front. Idempotent."""
        self.hello = None
        self._unsent.clear()
        self._connection.close()
        for request in self._answers:
            self._answered(request, ZygoteLostError())

    def _readable(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(
                self._socket, packets.MAX_PACKET_BYTES, packets.FORKED_DESCRIPTORS
            )
            packet = packets.decode(data) if data else None
        except BlockingIOError:
            return
        except (OSError, PacketError):
            packet, descriptors = None, []
        if packet is None:
            self._lose()
        else:
            self._handle(packet, descriptors)

    def _lose(self) -> None:
        self.close()
        self._on_lost()

    def _handle(self, packet: packets.Packet, descriptors: list[int]) -> None:
        match packet:
            case packets.Hello() | packets.MoreFunctions():
                self._greet(packet)
            case packets.ReloadRefused():
                self.reload_fault = packet.fault
                self.refused_reloads += 1
                self._on_refusal()
            case packets.Forked():
                self._forked(packet, descriptors)
            case packets.ForkFailed():
                self._answered(packet.request, ZygoteError(packet.reason))
            case packets.Measured() | model_packets.MeasuredModels():
                self._answered(packet.request, packet)
            case packets.Exited():
                self._on_exit(packet)
            case packets.WentOn():
                self._on_going_on(packet.worker)
            case model_packets.ModelStarted() | model_packets.ModelEnded() | model_packets.ModelFault():
                self._on_model(packet, descriptors)
            case packets.Retired():
                self._retired()

    def _retired(self) -> None:
        """Hand a duplicate of the connection to the handler of retired zygotes, and close this connection."""
        self._has_retired = True
        self._loop.remove_reader(self._socket.fileno())
        try:
            self._on_retirement(self._socket.dup())
        finally:
            self._lose()

    def _greet(self, packet: packets.Hello | packets.MoreFunctions) -> None:
        """Add a part to the zygote's greeting. Deliver the greeting when it is complete."""
        try:
            if isinstance(packet, packets.MoreFunctions):
                if self._greeting is None:
                    raise PacketError("no function is missing")
                packet = joined(self._greeting, packet)
            self.reload_fault = ""
            self._greeting = packet if packet.more else None
            if self._greeting is None:
                self.functions = decode_functions(packet.functions)
                self._answered(_GREETING, packet)
        except PacketError:
            self._lose()

    def _forked(self, packet: packets.Forked, descriptors: list[int]) -> None:
        is_whole = len(descriptors) == packets.FORKED_DESCRIPTORS
        if not is_whole or not self._answered(packet.request, ForkedWorker(packet.worker, packet.pid, *descriptors)):
            # The caller has given up. The worker ends by itself when its socket is closed.
            for descriptor in descriptors:
                os.close(descriptor)

    def _answered(self, request: int, answer: Any) -> bool:
        """Deliver an answer or an error to the waiter of a request; returns False if nothing waits for it."""
        waiting = self._answers.get(request)
        if waiting is None or waiting.done():
            return False
        if isinstance(answer, ZygoteError):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)
        return True


def _parts(workers: Sequence[str]) -> Iterable[Sequence[str]]:
    return (
        workers[start : start + packets.MAX_WORKERS_PER_PACKET]
        for start in range(0, len(workers), packets.MAX_WORKERS_PER_PACKET)
    )
