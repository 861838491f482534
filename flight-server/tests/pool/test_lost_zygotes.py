# SPDX-License-Identifier: Apache-2.0
"""Pool whose zygotes die at the worst moments: it connects to the next one first, and never gives up."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from zygote_paths import ZygotesAt

from updraft_server.ipc.zygote_packets import MAX_PACKET_BYTES, Fork, ForkFailed, Hello, decode, encode
from updraft_server.pool.leases import PoolError, PoolSettings
from updraft_server.pool.pool import Pool

HELLO = Hello(1, "3.11", "", [])
WORKERS = 8
HANG_SECONDS = 60.0


class Zygotes:
    """Source of connections to zygotes, one after the other; the test answers on them."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.setblocking(False)

    async def next_connection(self) -> socket.socket:
        async with asyncio.timeout(HANG_SECONDS):
            connection, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        connection.setblocking(False)
        connection.send(encode(HELLO))
        return connection

    def close(self) -> None:
        self._listener.close()


async def forks(connection: socket.socket, count: int = WORKERS) -> list[Fork]:
    """Receive this many requests for a worker."""
    asked: list[Fork] = []
    while len(asked) < count:
        packet = decode(await asyncio.get_running_loop().sock_recv(connection, MAX_PACKET_BYTES))
        if isinstance(packet, Fork):
            asked.append(packet)
    return asked


def _ignore(_: object) -> None:
    """Ignore the output of workers."""


@pytest.fixture
def zygotes(tmp_path: Path) -> Iterator[Zygotes]:
    with contextlib.closing(Zygotes(tmp_path / "z.sock")) as listening:
        yield listening


@pytest.fixture
async def pool(zygotes: Zygotes, tmp_path: Path) -> AsyncIterator[Pool]:
    pool = Pool(PoolSettings(workers=WORKERS, zygotes=ZygotesAt(tmp_path / "z.sock")), _ignore, _ignore)
    yield pool
    await pool.close(0.0)


async def test_a_zygote_that_dies_right_after_its_hello_is_replaced(zygotes: Zygotes, pool: Pool) -> None:
    starting = asyncio.create_task(pool.start())
    (await zygotes.next_connection()).close()
    with await zygotes.next_connection() as second:
        assert len(await forks(second)) == WORKERS
        starting.cancel()


async def test_a_zygote_that_dies_during_the_start_does_not_end_the_pool(zygotes: Zygotes, pool: Pool) -> None:
    starting = asyncio.create_task(pool.start())
    with await zygotes.next_connection() as first:
        await forks(first)
    with await zygotes.next_connection() as second:
        assert len(await forks(second)) == WORKERS
        assert not starting.done()
        starting.cancel()


async def test_starts_that_are_held_back_do_not_hold_back_the_claim_of_living_workers(
    zygotes: Zygotes, pool: Pool
) -> None:
    starting = asyncio.create_task(pool.start())
    with await zygotes.next_connection() as first:
        for fork in await forks(first):
            first.send(encode(ForkFailed(fork.request, "no memory")))
        with pytest.raises(PoolError, match="no memory"):
            await starting
        # The other failed starts now run at the slowest pace.
        await forks(first, 1)
    with capture_logs() as log:
        (await zygotes.next_connection()).close()
    # Only the requested start failed: without a zygote, no other start began before the claim.
    assert [line["reason"] for line in log if line["event"] == "a worker did not start"] == ["the zygote has gone away"]
