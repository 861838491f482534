# SPDX-License-Identifier: Apache-2.0
"""Messages that arrive before their exchange has a worker: the front refuses the oldest if they use too much memory."""

import asyncio
import contextlib
import ctypes
import dataclasses
import gc
import resource
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from fake_pool import FakePool
from flight_messages import FlightData, all_replies
from front_harness import Running

from updraft.errors import PoolFullError
from updraft.service.audit import NO_RECORD
from updraft.service.early_reads import EarlyReads, allocated_bytes
from updraft.service.identity import ANYBODY, STRANGER

MIB = 1024 * 1024
OWN_BYTES = 64 * MIB
PIECE_BYTES = 16 * 1024


class Sending:
    """Client whose message arrives when the test says so."""

    record = NO_RECORD

    def __init__(self, tenant: str | None = None) -> None:
        self.identity = dataclasses.replace(ANYBODY, tenant=tenant)
        self.message: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self.is_read = False

    async def read(self) -> bytes | None:
        self.is_read = True
        return await self.message

    async def write(self, message: bytes) -> None:
        raise NotImplementedError

    async def accept(self) -> None:
        raise NotImplementedError

    def header(self, name: str) -> str:
        return name

    @property
    def remaining_seconds(self) -> float | None:
        return None


class Memory:
    def __init__(self) -> None:
        self.allocated = 10 * MIB
        self.elsewhere = 0

    def early_reads(self) -> EarlyReads:
        return EarlyReads(
            limit_bytes=100 * MIB,
            refusal=lambda: PoolFullError("full", retry_after_milliseconds=70),
            elsewhere=lambda: self.elsewhere,
            allocated=lambda: self.allocated,
        )


async def settled(*reads: "asyncio.Task[bytes | None]") -> list[bool]:
    """Let the loop run until nothing changes, and return which reads have ended."""
    for _ in range(10):
        await asyncio.sleep(0)
    return [read.done() for read in reads]


async def test_the_older_half_is_refused_with_a_hint_when_memory_is_used_up() -> None:
    memory = Memory()
    early = memory.early_reads()
    clients = [Sending() for _ in range(4)]
    reads = [asyncio.ensure_future(early.of(client)()) for client in clients]
    await settled()
    memory.allocated = 110 * MIB + OWN_BYTES
    early.look()
    assert await settled(*reads) == [False] * 4
    memory.allocated += 1
    early.look()
    assert await settled(*reads) == [True, True, False, False]
    with pytest.raises(PoolFullError) as refused:
        await reads[0]
    assert refused.value.retry_after_milliseconds == 70
    early.look()
    early.look()
    assert await settled(*reads) == [True, True, True, False]
    clients[3].message.set_result(b"there")
    assert await reads[3] == b"there"
    with pytest.raises(PoolFullError):
        await asyncio.gather(reads[1], reads[2])
    with pytest.raises(PoolFullError):
        await reads[2]


async def test_strangers_are_refused_before_anybody_who_is_known() -> None:
    memory = Memory()
    early = memory.early_reads()
    known, stranger = Sending("a"), Sending()
    stranger.identity = STRANGER
    reads = [asyncio.ensure_future(early.of(client)()) for client in (known, known, known, stranger)]
    await settled()
    memory.allocated = 500 * MIB
    early.look()
    assert await settled(*reads) == [False, False, False, True]
    with pytest.raises(PoolFullError):
        await reads[3]
    for read in reads:
        read.cancel()


class Crowd:
    """Twenty clients whose messages are unread."""

    def __init__(self, early: EarlyReads) -> None:
        self.clients = [Sending() for _ in range(20)]
        self.reads = [asyncio.ensure_future(early.of(client)()) for client in self.clients]

    async def begun(self) -> int:
        """Return the number of reads that have begun."""
        await settled()
        return sum(client.is_read for client in self.clients)

    async def leave(self) -> None:
        for read in self.reads:
            read.cancel()
        await asyncio.gather(*self.reads, return_exceptions=True)


async def test_few_reads_begin_before_the_next_look_however_late_it_comes() -> None:
    early = Memory().early_reads()
    crowd = Crowd(early)
    assert await crowd.begun() == 8
    for number in (0, 1, 2):
        crowd.clients[number].message.set_result(b"there")
    assert await crowd.begun() == 11
    # Silent clients delay others only until the next look.
    early.look()
    assert await crowd.begun() == 19
    early.look()
    assert await crowd.begun() == 20
    await crowd.leave()


async def test_reads_begin_one_at_a_time_while_memory_is_short() -> None:
    memory = Memory()
    early = memory.early_reads()
    crowd = Crowd(early)
    assert await crowd.begun() == 8
    memory.allocated = 500 * MIB
    early.look()
    # The front refuses the older half, including all clients that it is reading from.
    assert sum(await settled(*crowd.reads)) == 10
    assert await crowd.begun() == 9
    crowd.clients[10].message.set_result(b"there")
    assert await crowd.begun() == 10
    memory.allocated = 0
    early.look()
    assert await crowd.begun() == 18
    await crowd.leave()


async def test_a_read_that_was_given_up_leaves_its_turn_to_the_next() -> None:
    crowd = Crowd(Memory().early_reads())
    assert await crowd.begun() == 8
    for read in (crowd.reads[3], crowd.reads[9]):
        read.cancel()
    assert await crowd.begun() == 9
    assert not crowd.clients[9].is_read
    await crowd.leave()


async def test_a_caller_that_opens_many_silent_reads_holds_up_its_own_alone() -> None:
    early = Memory().early_reads()
    flood, honest = [Sending("flood") for _ in range(40)], Sending("honest")
    reads = [asyncio.ensure_future(early.of(client)()) for client in (*flood, honest)]
    await settled()
    assert not honest.is_read
    early.look()
    await settled()
    assert honest.is_read
    assert sum(client.is_read for client in flood) == 15
    for read in reads:
        read.cancel()


async def test_what_running_exchanges_may_take_is_not_counted() -> None:
    memory = Memory()
    early = memory.early_reads()
    reads = [asyncio.ensure_future(early.of(Sending())()) for _ in range(2)]
    await settled()
    memory.allocated, memory.elsewhere = 500 * MIB, 400 * MIB
    early.look()
    assert await settled(*reads) == [False, False]
    for read in reads:
        read.cancel()


async def test_the_library_says_what_it_has_allocated() -> None:
    before = allocated_bytes()
    held = bytes(50 * MIB)
    # Other threads of this process free a little memory meanwhile.
    assert allocated_bytes() >= before + len(held) // 2


async def test_a_refused_message_is_freed_at_once(running_front: Running) -> None:
    message = FlightData(flight_descriptor={"type": 2, "cmd": b"x"}, data_body=bytes(16 * MIB)).SerializeToString()
    async with running_front(FakePool()) as front:
        before = allocated_bytes()
        gc.disable()
        try:
            for _ in range(10):
                call = front.exchange(timeout=60)
                await call.write(bytes(message))
                _, error = await all_replies(call)
                assert error is not None
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            # The remaining memory belongs to the libraries' last references, not to everything that was sent.
            assert allocated_bytes() < before + 80 * MIB
        finally:
            gc.enable()


async def test_who_reads_most_is_refused_first() -> None:
    memory = Memory()
    early = memory.early_reads()
    clients = [Sending(tenant) for tenant in ("quiet", *("flood",) * 4, "other")]
    reads = [asyncio.ensure_future(early.of(client)()) for client in clients]
    await settled()
    memory.allocated = 500 * MIB
    early.look()
    assert await settled(*reads) == [False, True, True, True, False, False]
    with pytest.raises(PoolFullError):
        await asyncio.gather(*reads[1:4])
    for read in reads:
        read.cancel()


async def test_what_messages_have_freed_goes_back_to_the_system_while_others_are_refused() -> None:
    memory = Memory()
    early = memory.early_reads()
    held_bytes = resident_bytes()
    with freed_pieces():
        assert resident_bytes() > held_bytes + 100 * MIB
        early.look()
        assert resident_bytes() > held_bytes + 100 * MIB
        memory.allocated = 110 * MIB + OWN_BYTES + 1
        early.look()
        assert resident_bytes() < held_bytes + 20 * MIB


@contextlib.contextmanager
def freed_pieces() -> Iterator[None]:
    """Free memory below a block still in use, which keeps the C library from returning it."""
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    pieces = [library.malloc(PIECE_BYTES) for _ in range(128 * MIB // PIECE_BYTES)]
    for piece in pieces:
        ctypes.memset(ctypes.c_void_p(piece), 1, PIECE_BYTES)
    last = library.malloc(PIECE_BYTES)
    for piece in pieces:
        library.free(ctypes.c_void_p(piece))
    try:
        yield
    finally:
        library.free(ctypes.c_void_p(last))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
