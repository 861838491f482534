# SPDX-License-Identifier: Apache-2.0
"""Pool and its zygote, which forks nothing: its workers are sockets."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from zygote_paths import ZygotesAt

from updraft_server.ipc.frames import FrameKind, encode_header
from updraft_server.ipc.zygote_packets import (
    MAX_PACKET_BYTES,
    Claim,
    Continue,
    Exited,
    Fork,
    Forked,
    Hello,
    Kill,
    Measure,
    Measured,
    Packet,
    Stop,
    decode,
    encode,
)
from updraft_server.pool.leases import (
    PoolSettings,
    TaskKey,
)
from updraft_server.pool.pool import Pool
from updraft_server.pool.worker_events import WorkerOutput

TASK = TaskKey("app", 1, 2)


class Zygote:
    """Zygote that answers one front; its workers are sockets."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._listener.bind(str(path))
        self._listener.listen()
        self._front: socket.socket
        self.living: dict[str, tuple[socket.socket, int]] = {}
        self.claimed: list[str] = []
        self.forks = 0
        self.hello = Hello(1, "3.11", "", [])
        self.has_loaded = asyncio.Event()
        """Before that it says nothing."""
        self.has_loaded.set()
        self.may_fork = True
        self.kills_at_once = True
        """Whether nobody has to call `kill_all`."""
        self._killed: list[str] = []
        self.measured: asyncio.Queue[list[str]] = asyncio.Queue()
        self.told: asyncio.Queue[tuple[type[Packet], str]] = asyncio.Queue()
        """To stop and continue workers."""
        self.held_back: asyncio.Queue[int] = asyncio.Queue()
        """Forks that were asked for while it might not."""
        self._serving = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._front, _ = await loop.sock_accept(self._listener)
            with self._front as front:
                await self.has_loaded.wait()
                with suppress(BrokenPipeError):
                    front.send(encode(self.hello))
                while data := await loop.sock_recv(front, MAX_PACKET_BYTES):
                    self._take(decode(data))

    def _take(self, packet: Packet) -> None:
        match packet:
            case Fork(request) if self.may_fork:
                self.fork(request)
            case Fork(request):
                self.held_back.put_nowait(request)
            case Kill(worker) if worker in self.living:
                self._killed.append(worker)
                if self.kills_at_once:
                    self.kill_all()
            case Claim(workers):
                self.claimed += workers
            case Stop(worker) | Continue(worker):
                self.told.put_nowait((type(packet), worker))
            case Measure(request, workers):
                self.measured.put_nowait(list(workers))
                self._front.send(encode(Measured(request, dict.fromkeys(workers, (4096, "mark", 0, 1, 0.0, 1, None)))))

    def kill_all(self) -> None:
        """End the workers that the front has killed."""
        while self._killed:
            self.end(self._killed.pop(), -signal.SIGKILL)

    def hang_up(self) -> None:
        """Close the connection, so that the front has to connect again."""
        self._front.shutdown(socket.SHUT_RDWR)

    def fork(self, request: int) -> None:
        front_end, worker_end = socket.socketpair()
        reading, writing = os.pipe()
        self.forks += 1
        name = f"w-{self.forks}"
        self.living[name] = worker_end, writing
        worker_end.send(encode_header(FrameKind.READY))
        with front_end:
            # A pipe instead of a pidfd, so that the front asks the zygote to continue workers.
            descriptors = [front_end.fileno(), reading, reading, reading]
            socket.send_fds(self._front, [encode(Forked(request, name, 4711))], descriptors)
        os.close(reading)

    def end(self, worker: str, status: int) -> None:
        """End a worker with an exit status, or a negative signal number."""
        end, writing = self.living.pop(worker)
        end.close()
        os.close(writing)
        self._front.send(encode(Exited(worker, status)))

    async def close(self) -> None:
        self._serving.cancel()
        await asyncio.wait([self._serving])
        for end, writing in self.living.values():
            end.close()
            os.close(writing)
        self._listener.close()


@asynccontextmanager
async def running(
    tmp_path: Path, workers: int = 1, on_output: Callable[[WorkerOutput], None] = lambda _: None, **changes: Any
) -> AsyncIterator[tuple[Pool, Zygote]]:
    zygote = Zygote(tmp_path / "z.sock")
    settings = PoolSettings(workers=workers, zygotes=ZygotesAt(tmp_path / "z.sock"), **changes)
    pool = Pool(settings, on_output, lambda _: None)
    async with asyncio.timeout(60):
        await pool.start()
        yield pool, zygote
        await pool.close(0.0)
        await zygote.close()
