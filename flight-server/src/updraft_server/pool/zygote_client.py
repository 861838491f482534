# SPDX-License-Identifier: Apache-2.0
"""The front's connection to the zygote: forks on demand, exits as they happen."""

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from updraft_server.ipc.zygote_packets import (
    FORKED_DESCRIPTORS,
    MAX_PACKET_BYTES,
    Exited,
    Fork,
    Forked,
    ForkFailed,
    Hello,
    Packet,
    PacketError,
    decode,
    encode,
)


class ZygoteError(Exception):
    """Raised when the zygote is not there, goes away, or cannot fork."""


class ForkedWorker(NamedTuple):
    """A new worker process and the descriptors that belong to it; the receiver closes them."""

    pid: int
    socket_fd: int
    output_fd: int


class ZygoteClient:
    """One connection, used from one event loop. After `lost` is set it is of no more use."""

    def __init__(self, sock: socket.socket, on_exit: Callable[[Exited], None], on_lost: Callable[[], None]) -> None:
        self._socket = sock
        self._on_exit = on_exit
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._hello: asyncio.Future[Hello] = self._loop.create_future()
        self._forks: dict[int, asyncio.Future[ForkedWorker]] = {}
        self._requests = 0
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

    async def fork(self) -> ForkedWorker:
        """A new worker; raises ZygoteError. The caller bounds the wait."""
        self._requests += 1
        request = self._requests
        forked: asyncio.Future[ForkedWorker] = self._loop.create_future()
        if self._closed:
            raise ZygoteError("the zygote has gone away")
        self._forks[request] = forked
        try:
            self._socket.send(encode(Fork(request)))
        except OSError as error:
            self._forks.pop(request, None)
            raise ZygoteError(f"the zygote has gone away: {error.strerror}") from error
        return await forked

    def close(self) -> None:
        """Let go; the zygote then ends the workers that it forked for this connection. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        waiters: list[asyncio.Future[Any]] = [self._hello, *self._forks.values()]
        for waiting in waiters:
            if not waiting.done():
                waiting.set_exception(ZygoteError("the zygote has gone away"))
                waiting.exception()  # whoever waits still gets it; that nobody waits is no mistake
        self._forks.clear()

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
                waiting = self._forks.pop(packet.request, None)
                if waiting is not None and not waiting.done():
                    waiting.set_exception(ZygoteError(packet.reason))
            case Exited():
                self._on_exit(packet)

    def _forked(self, packet: Forked, descriptors: list[int]) -> None:
        forked = self._forks.pop(packet.request, None)
        if forked is None or forked.done() or len(descriptors) != FORKED_DESCRIPTORS:
            # Nobody waits any more: without its socket the worker ends by itself.
            for descriptor in descriptors:
                os.close(descriptor)
            return
        forked.set_result(ForkedWorker(packet.pid, descriptors[0], descriptors[1]))
