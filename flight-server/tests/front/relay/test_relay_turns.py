# SPDX-License-Identifier: Apache-2.0
"""Turns in an exchange: which side is blamed for a silence."""

import asyncio
import socket

import pytest
from fake_pool import FakeWorker
from flight_messages import FlightData, batch, finish
from relay_exchanges import consume, data, exchange

from updraft.v1.exchange_pb2 import Admitted, BatchPart, ReplyMetadata, RequestMetadata
from updraft_server.front.relay.relay import Side
from updraft_server.ipc.frames import FrameKind
from updraft_server.pool.leases import LeaseOutcome


async def test_whose_turn_it_is_follows_what_has_passed() -> None:
    turns: list[Side | None] = []

    async def one_batch(worker: FakeWorker) -> None:
        await worker.receive()
        await worker.receive()
        turns.append(running.relay.turn)
        # The first message means that the function has started, the second that it wants another batch.
        for _ in range(2):
            await worker.send(FrameKind.MESSAGE, ReplyMetadata(consumed=1).SerializeToString())
        await consume(worker)
        await worker.send(FrameKind.DONE)

    running = await exchange([batch(1)], one_batch, ends=False)
    assert running.relay.turn is Side.WORKER
    relaying = asyncio.create_task(running.run())
    # The first message is the admission.
    await running.call.has_received(3)
    turns.append(running.relay.turn)
    for message in (finish(1, rows=3), None):
        running.call.sent.put_nowait(message)
    assert await relaying is LeaseOutcome.CLEAN
    assert turns == [Side.WORKER, Side.CLIENT]


@pytest.mark.parametrize("replies", [0, 1, 3])
async def test_what_a_client_of_plain_flight_is_not_told_still_says_whose_turn_it_is(replies: int) -> None:
    """A table function sends any number of batches for one request."""

    async def schema_and_results(worker: FakeWorker) -> None:
        for _ in range(2):
            await worker.receive()
        await worker.send(FrameKind.MESSAGE, ReplyMetadata().SerializeToString(), b"schema")
        await replying.wait()
        taken = ReplyMetadata(consumed=1).SerializeToString()
        for _ in range(replies):
            await worker.send(FrameKind.MESSAGE, taken, b"h")
        await worker.send(FrameKind.MESSAGE, taken)
        await worker.send(FrameKind.MESSAGE, taken, b"last")
        await consume(worker)

    replying = asyncio.Event()
    running = await exchange([data()], schema_and_results, ends=False, plain=True)
    relaying = asyncio.create_task(running.run())
    turns: list[Side | None] = []
    for received in (1, replies + 2):
        await running.call.has_received(received)
        await asyncio.sleep(0)
        turns.append(running.relay.turn)
        replying.set()
    assert turns == [Side.WORKER, Side.CLIENT]
    assert [bytes(message.app_metadata) for message in running.call.received] == [b""] * (replies + 2)
    relaying.cancel()
    await asyncio.wait([relaying])


@pytest.mark.parametrize("taken", [1, 128, 300])
async def test_how_much_the_function_has_taken_may_be_any_number(taken: int) -> None:
    async def takes_them(worker: FakeWorker) -> None:
        for _ in range(2):
            await worker.send(FrameKind.MESSAGE, ReplyMetadata(consumed=taken).SerializeToString())
        await consume(worker)

    running = await exchange([], takes_them, ends=False)
    relaying = asyncio.create_task(running.run())
    await running.call.has_received(3)
    await asyncio.sleep(0)
    for batches, turn in ((taken, Side.CLIENT), (taken + 1, Side.WORKER)):
        running.transfer.received_messages = batches
        assert running.relay.turn is turn
    relaying.cancel()
    await asyncio.wait([relaying])


@pytest.mark.parametrize(("ends", "turn"), [(False, Side.CLIENT), (True, None)])
async def test_a_client_that_does_not_read_can_show_that_it_is_there_until_it_half_closes(
    turn: Side | None, *, ends: bool
) -> None:
    async def one_reply(worker: FakeWorker) -> None:
        await consume(worker) if ends else await worker.receive()
        await worker.send(FrameKind.MESSAGE, b"", b"schema")
        await asyncio.Event().wait()

    running = await exchange([], one_reply, ends=ends, plain=True)
    running.call.reads.clear()
    relaying = asyncio.create_task(running.run())
    await running.call.has_received(1)
    assert running.relay.turn is turn
    relaying.cancel()
    await asyncio.wait([relaying])


@pytest.mark.parametrize("metadata", [b"", ReplyMetadata(admitted=Admitted()).SerializeToString()])
async def test_a_reply_that_says_nothing_of_it_has_taken_nothing(metadata: bytes) -> None:
    async def takes_nothing(worker: FakeWorker) -> None:
        for _ in range(2):
            await worker.send(FrameKind.MESSAGE, metadata, b"header")
        await consume(worker)

    running = await exchange([], takes_nothing, ends=False)
    relaying = asyncio.create_task(running.run())
    await running.call.has_received(3)
    await asyncio.sleep(0)
    running.transfer.received_messages = 1
    assert running.relay.turn is Side.WORKER
    relaying.cancel()
    await asyncio.wait([relaying])


async def test_the_first_reply_says_that_the_function_has_begun_and_not_that_it_wants_more() -> None:
    async def begins(worker: FakeWorker) -> None:
        await worker.send(FrameKind.MESSAGE, ReplyMetadata(consumed=1).SerializeToString())
        await consume(worker)

    running = await exchange([], begins, ends=False)
    relaying = asyncio.create_task(running.run())
    await running.call.has_received(2)
    await asyncio.sleep(0)
    running.transfer.received_messages = 1
    assert running.relay.turn is Side.WORKER
    relaying.cancel()
    await asyncio.wait([relaying])


async def test_a_client_that_has_sent_nothing_yet_is_waited_for() -> None:
    running = await exchange([], consume, ends=False)
    relaying = asyncio.create_task(running.run())
    await running.call.has_received(1)
    await asyncio.sleep(0)
    assert running.relay.turn is Side.CLIENT
    relaying.cancel()
    await asyncio.wait([relaying])


async def test_keepalives_behind_batches_that_the_worker_does_not_take_cannot_arrive() -> None:
    async def takes_nothing_more(worker: FakeWorker) -> None:
        await worker.send(FrameKind.MESSAGE, b"", b"schema")
        await asyncio.Event().wait()

    running = await exchange([data(9_000)] * 20, takes_nothing_more, ends=False, plain=True)
    running.lease.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    running.call.reads.clear()
    relaying = asyncio.create_task(running.run())
    await running.call.has_received(1)
    assert not running.call.sent.empty()
    assert running.relay.turn is None
    relaying.cancel()
    await asyncio.wait([relaying])


async def test_parts_that_the_worker_does_not_take_are_its_turn() -> None:
    async def takes_nothing(_worker: FakeWorker) -> None:
        await asyncio.Event().wait()

    metadata = RequestMetadata(part=BatchPart(body_bytes=1 << 20, offset=0)).SerializeToString()
    part = FlightData(app_metadata=metadata, data_body=bytes(9_000)).SerializeToString()
    running = await exchange([part] * 20, takes_nothing, ends=False)
    running.lease.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    relaying = asyncio.create_task(running.run())
    await running.call.has_received(1)
    # Polling, because the sender has no event for it.
    while not running.relay._sender.is_held_back:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert running.transfer.batches == 0
    assert running.relay.turn is Side.WORKER
    relaying.cancel()
    await asyncio.wait([relaying])
