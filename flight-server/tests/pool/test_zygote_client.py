# SPDX-License-Identifier: Apache-2.0
"""Front's end of the connection to a zygote: a test answers for the zygote, or does not."""

import asyncio
import dataclasses
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from zygote_paths import ZygotesAt

from updraft_server.ipc.model_packets import MeasureModels
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.ipc.zygote_packets import (
    MAX_PACKET_BYTES,
    MAX_WORKERS_PER_PACKET,
    Exited,
    Fork,
    Forked,
    ForkFailed,
    Hello,
    Kill,
    Measure,
    Measured,
    Packet,
    Retired,
    decode,
    encode,
)
from updraft_server.pool.zygote_client import ZygoteClient, ZygoteError

HELLO = Hello(1, "3.11", "", [])


class Zygote:
    """Zygote's end of the connection, and what the client reported."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.exits: asyncio.Queue[Exited] = asyncio.Queue()
        self.lost = asyncio.Event()
        self.retired: asyncio.Queue[socket.socket] = asyncio.Queue()
        self.client: ZygoteClient

    async def receive(self) -> Packet:
        return decode(await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.end, MAX_PACKET_BYTES), 60))

    def send(self, packet: Packet, *descriptors: int) -> None:
        socket.send_fds(self.end, [encode(packet)], descriptors)


@pytest.fixture
async def zygote(tmp_path: Path) -> AsyncIterator[Zygote]:
    path = tmp_path / "z.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        lost = asyncio.Event()
        exits: asyncio.Queue[Exited] = asyncio.Queue()
        retired: asyncio.Queue[socket.socket] = asyncio.Queue()
        client = ZygoteClient(ZygotesAt(path), exits.put_nowait, lost.set, lambda *_: None, retired.put_nowait)
        connecting = asyncio.create_task(client.connect())
        end, _ = await asyncio.to_thread(listener.accept)
        with end:
            end.setblocking(False)
            running = Zygote(end)
            running.exits, running.lost, running.retired = exits, lost, retired
            running.send(HELLO)
            running.client = client
            assert await connecting == HELLO
            yield running
            running.client.close()


async def test_a_fork_gives_the_worker_under_its_id_with_its_descriptors(zygote: Zygote) -> None:
    forking = asyncio.create_task(zygote.client.fork())
    asked = await zygote.receive()
    assert isinstance(asked, Fork)
    reading, writing = os.pipe()
    zygote.send(Forked(asked.request, "a-1", 4711), reading, writing, reading, writing)
    forked = await asyncio.wait_for(forking, 60)
    assert forked.id == "a-1"
    for descriptor in (reading, writing, forked.socket_fd, forked.output_fd, forked.stack_fd, forked.pidfd):
        os.close(descriptor)


async def test_a_fork_that_fails_is_told_with_its_reason(zygote: Zygote) -> None:
    forking = asyncio.create_task(zygote.client.fork())
    asked = await zygote.receive()
    assert isinstance(asked, Fork)
    zygote.send(ForkFailed(asked.request, "fork: no memory"))
    with pytest.raises(ZygoteError, match="no memory"):
        await asyncio.wait_for(forking, 60)


async def test_a_worker_that_comes_after_nobody_waits_is_let_go(zygote: Zygote) -> None:
    forking = asyncio.create_task(zygote.client.fork())
    asked = await zygote.receive()
    assert isinstance(asked, Fork)
    forking.cancel()
    await asyncio.wait([forking])
    front_end, worker_end = socket.socketpair()
    with worker_end, os.fdopen(os.open(os.devnull, os.O_RDONLY)) as output:
        zygote.send(Forked(asked.request, "a-1", 4711), front_end.fileno(), *[output.fileno()] * 3)
        front_end.close()
        worker_end.setblocking(False)
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(worker_end, 1), 60) == b""


async def test_a_worker_whose_caller_is_cancelled_as_it_comes_is_let_go(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    forking = asyncio.create_task(zygote.client.fork())
    asked = await zygote.receive()
    assert isinstance(asked, Fork)
    arrived = zygote.client._forked

    def arrive_and_cancel(packet: Forked, descriptors: list[int]) -> None:
        arrived(packet, descriptors)
        forking.cancel()

    monkeypatch.setattr(zygote.client, "_forked", arrive_and_cancel)
    front_end, worker_end = socket.socketpair()
    with worker_end, os.fdopen(os.open(os.devnull, os.O_RDONLY)) as output:
        zygote.send(Forked(asked.request, "a-1", 4711), front_end.fileno(), *[output.fileno()] * 3)
        front_end.close()
        await asyncio.wait([forking])
        assert forking.cancelled()
        worker_end.setblocking(False)
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(worker_end, 1), 60) == b""


async def test_a_zygote_that_retires_is_lost_and_its_connection_is_somebody_elses(zygote: Zygote) -> None:
    forking = asyncio.create_task(zygote.client.fork())
    await zygote.receive()
    zygote.send(Retired())
    with pytest.raises(ZygoteError, match="gone away"):
        await asyncio.wait_for(forking, 60)
    assert zygote.lost.is_set()
    with zygote.retired.get_nowait() as left:
        left.send(encode(MeasureModels(7)))
        assert await zygote.receive() == MeasureModels(7)


async def test_a_zygote_that_retires_as_soon_as_it_has_loaded_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "z.sock"
    retired: asyncio.Queue[socket.socket] = asyncio.Queue()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(60)
        client = ZygoteClient(ZygotesAt(path), lambda _: None, lambda: None, lambda *_: None, retired.put_nowait)
        connecting = asyncio.create_task(client.connect())
        first, _ = await asyncio.to_thread(listener.accept)
        for packet in (HELLO, Retired()):
            first.send(encode(packet))
        second, _ = await asyncio.to_thread(listener.accept)
        second.settimeout(60)
        hello = dataclasses.replace(HELLO, generation=1)
        second.send(encode(hello))
        assert await asyncio.wait_for(connecting, 60) == hello
        client.send(Kill("a-1"))
        assert decode(await asyncio.to_thread(second.recv, MAX_PACKET_BYTES)) == Kill("a-1")
        client.close()
        with first, second, retired.get_nowait() as left:
            first.send(encode(Exited("a-2", None)))
            assert decode(left.recv(MAX_PACKET_BYTES)) == Exited("a-2", None)


async def test_exits_are_passed_on(zygote: Zygote) -> None:
    zygote.send(Exited("a-1", 3))
    assert await asyncio.wait_for(zygote.exits.get(), 60) == Exited("a-1", 3)


async def test_more_workers_than_a_packet_may_name_are_measured_in_parts(zygote: Zygote) -> None:
    workers = [f"a-{number}" for number in range(MAX_WORKERS_PER_PACKET + 1)]
    measuring = asyncio.create_task(zygote.client.measure(workers))
    for size in (MAX_WORKERS_PER_PACKET, 1):
        asked = await zygote.receive()
        assert isinstance(asked, Measure)
        assert len(asked.workers) == size
        zygote.send(Measured(asked.request, dict.fromkeys(asked.workers, (4096, "mark", 0, 1, 0.0, 1, None))))
    assert await asyncio.wait_for(measuring, 60) == dict.fromkeys(workers, WorkerUsage(4096, "mark"))


async def test_packets_wait_for_a_zygote_that_does_not_read_and_none_is_lost(zygote: Zygote) -> None:
    names = [f"worker-{number}" for number in range(5000)]
    for name in names:
        zygote.client.send(Kill(name))
    assert zygote.client._unsent, "the socket has room for all of them: this tests nothing"
    assert [await zygote.receive() for _ in names] == [Kill(name) for name in names]


async def test_the_end_of_a_zygote_wakes_everybody_who_waits(zygote: Zygote) -> None:
    waiting = [asyncio.create_task(zygote.client.fork()), asyncio.create_task(zygote.client.measure(["a-1"]))]
    for _ in waiting:
        await zygote.receive()
    zygote.end.close()
    for task in waiting:
        with pytest.raises(ZygoteError, match="gone away"):
            await asyncio.wait_for(task, 60)
    await asyncio.wait_for(zygote.lost.wait(), 60)
    zygote.client.send(Kill("a-1"))
    with pytest.raises(ZygoteError):
        await zygote.client.fork()


@pytest.mark.parametrize("packet", [b"", b"{}"])
async def test_a_connection_without_a_sense_is_lost(zygote: Zygote, packet: bytes) -> None:
    if packet:
        zygote.end.send(packet)
    else:
        zygote.end.shutdown(socket.SHUT_RDWR)
    await asyncio.wait_for(zygote.lost.wait(), 60)
