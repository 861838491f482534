# SPDX-License-Identifier: Apache-2.0
"""The front's connection to the zygote: forks, kills and measurements on demand, exits as they happen."""

import asyncio
import itertools
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.ipc.zygote_packets import (
    FORKED_DESCRIPTORS,
    MAX_PACKET_BYTES,
    MAX_WORKERS_PER_PACKET,
    Claim,
    Exited,
    Fork,
    Forked,
    ForkFailed,
    Hello,
    Kill,
    Measure,
    Measured,
    Packet,
    PacketError,
    decode,
    encode,
)

_Answer = TypeVar("_Answer")


class ZygoteError(Exception):
    """Raised when the zygote is not there, goes away, or cannot fork."""


class ForkedWorker(NamedTuple):
    """A new worker process and the descriptors that belong to it; the receiver closes them."""

    id: str
    pid: int
    """On the zygote's side: for people to read, never to act on."""
    socket_fd: int
    output_fd: int


class ZygoteClient:
    """One connection, used from one event loop. After `on_lost` was called it is of no more use."""

    def __init__(self, sock: socket.socket, on_exit: Callable[[Exited], None], on_lost: Callable[[], None]) -> None:
        self._socket = sock
        self._on_exit = on_exit
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._hello: asyncio.Future[Hello] = self._loop.create_future()
        self._forks: dict[int, asyncio.Future[ForkedWorker]] = {}
        self._measurements: dict[int, asyncio.Future[Measured]] = {}
        self._requests = itertools.count(1)
        self._unsent: deque[bytes] = deque()
        self._closed = False
        self._loop.add_reader(sock.fileno(), self._readable)

    @classmethod
    async def connect(
        cls, path: Path, on_exit: Callable[[Exited], None], on_lost: Callable[[], None], timeout_seconds: float
    ) -> tuple["ZygoteClient", Hello]:
        """Connect and wait for the zygote's hello, which comes once it has loaded; raises ZygoteError."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            sock.setblocking(False)  # noqa: FBT003
            sock.connect(str(path))
        except OSError as error:
            sock.close()
            raise ZygoteError(f"the zygote cannot be reached at {path}: {error.strerror}") from error
        client = cls(sock, on_exit, on_lost)
        try:
            async with asyncio.timeout(timeout_seconds):
                return client, await asyncio.shield(client._hello)
        except TimeoutError:
            client.close()
            raise ZygoteError(f"the zygote was not ready within {timeout_seconds:g} seconds") from None
        except BaseException:
            client.close()
            raise

    @property
    def is_closed(self) -> bool:
        """Whether the zygote has gone away, or `close` was called."""
        return self._closed

    async def fork(self) -> ForkedWorker:
        """A new worker; raises ZygoteError. The caller bounds the wait."""
        request = next(self._requests)
        return await self._answer(self._forks, request, Fork(request))

    def claim(self, workers: Sequence[str]) -> None:
        """Keep these workers of an earlier zygote; the exit of each that is gone is reported."""
        for some in _parts(workers):
            self._send(Claim(some))

    def kill(self, worker: str) -> None:
        """End a worker; its exit is reported. A worker that has ended already is no mistake."""
        self._send(Kill(worker))

    async def measure(self, workers: Sequence[str]) -> Mapping[str, WorkerUsage]:
        """What each of the workers uses that live; raises ZygoteError. The caller bounds the wait."""
        usage: dict[str, WorkerUsage] = {}
        for some in _parts(workers):
            request = next(self._requests)
            measured = await self._answer(self._measurements, request, Measure(request, some))
            usage.update({worker: WorkerUsage(*fields) for worker, fields in measured.usage.items()})
        return usage

    async def _answer(self, waiting: dict[int, asyncio.Future[_Answer]], request: int, packet: Packet) -> _Answer:
        if self._closed:
            raise ZygoteError("the zygote has gone away")
        answer: asyncio.Future[_Answer] = self._loop.create_future()
        waiting[request] = answer
        self._send(packet)
        try:
            return await answer
        finally:
            waiting.pop(request, None)

    def _send(self, packet: Packet) -> None:
        self._unsent.append(encode(packet))
        if len(self._unsent) == 1:
            self._send_unsent()

    def _send_unsent(self) -> None:
        """A zygote that does not read is the supervisor's to end; until then its packets wait here."""
        while self._unsent and not self._closed:
            try:
                self._socket.send(self._unsent[0])
            except BlockingIOError:
                self._loop.add_writer(self._socket.fileno(), self._send_unsent)
                return
            except OSError:
                # Its end of file is noticed by the reader.
                break
            self._unsent.popleft()
        self._unsent.clear()
        if not self._closed:
            self._loop.remove_writer(self._socket.fileno())

    def close(self) -> None:
        """Let go; the zygote then ends the workers that it forked for this connection. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        waiters: list[asyncio.Future[Any]] = [self._hello, *self._forks.values(), *self._measurements.values()]
        for waiting in waiters:
            if not waiting.done():
                waiting.set_exception(ZygoteError("the zygote has gone away"))
                waiting.exception()  # whoever waits still gets it; that nobody waits is no mistake

    def _readable(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, MAX_PACKET_BYTES, FORKED_DESCRIPTORS)
            packet = decode(data) if data else None
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, PacketError):
            packet, descriptors = None, []
        if packet is None:
            self.close()
            self._on_lost()
        else:
            self._handle(packet, descriptors)

    def _handle(self, packet: Packet, descriptors: list[int]) -> None:
        match packet:
            case Hello():
                if not self._hello.done():
                    self._hello.set_result(packet)
            case Forked():
                self._forked(packet, descriptors)
            case ForkFailed():
                waiting = self._forks.get(packet.request)
                if waiting is not None and not waiting.done():
                    waiting.set_exception(ZygoteError(packet.reason))
            case Measured():
                measured = self._measurements.get(packet.request)
                if measured is not None and not measured.done():
                    measured.set_result(packet)
            case Exited():
                self._on_exit(packet)

    def _forked(self, packet: Forked, descriptors: list[int]) -> None:
        forked = self._forks.get(packet.request)
        if forked is None or forked.done() or len(descriptors) != FORKED_DESCRIPTORS:
            # Nobody waits any more: without its socket the worker ends by itself.
            for descriptor in descriptors:
                os.close(descriptor)
            return
        forked.set_result(ForkedWorker(packet.worker, packet.pid, descriptors[0], descriptors[1]))


def _parts(workers: Sequence[str]) -> Iterable[Sequence[str]]:
    return (workers[start : start + MAX_WORKERS_PER_PACKET] for start in range(0, len(workers), MAX_WORKERS_PER_PACKET))
