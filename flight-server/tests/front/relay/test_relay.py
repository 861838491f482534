# SPDX-License-Identifier: Apache-2.0
"""Messages that pass through a relay, and their counts."""

import asyncio

import pytest
from fake_pool import FakeWorker
from flight_messages import FlightData, batch, finish, keep_alive
from relay_exchanges import data, dictionary, exchange, silent

from updraft.errors import (
    LimitError,
)
from updraft.v1.exchange_pb2 import (
    BatchPart,
    Finish,
    KeepAlive,
    PayloadPart,
    RequestMetadata,
)
from updraft_server.front.relay.relay import Side
from updraft_server.ipc.frames import FrameKind
from updraft_server.pool.leases import LeaseOutcome


async def test_batches_come_back_and_are_counted() -> None:
    running = await exchange([batch(1), keep_alive(), batch(2), finish(2, rows=6)])
    assert await running.run() is LeaseOutcome.CLEAN
    transfer = running.transfer
    assert (transfer.batches, transfer.finishes, transfer.keep_alives, transfer.rows) == (2, 1, 1, 6)
    # The admission, the schema, and every message but the keepalive.
    assert len(running.call.received) == 5
    assert (transfer.received_messages, transfer.sent_messages) == (3, 4)
    assert transfer.received_bytes == sum(map(len, (batch(1), batch(2), finish(2, rows=6))))
    assert transfer.sent_bytes == sum(message.ByteSize() for message in running.call.received[1:])
    assert running.relay.passed == (3, 4)
    assert running.relay.client_activity == (3, 1, 4)


async def test_plain_flight_gets_data_alone_and_a_message_without_any_is_a_keepalive() -> None:
    running = await exchange([data(), FlightData().SerializeToString(), data()], plain=True)
    assert await running.run() is LeaseOutcome.CLEAN
    assert running.transfer.keep_alives == 1
    assert [bytes(message.data_body) for message in running.call.received] == [b"", b"b" * 10, b"b" * 10]
    assert not any(message.app_metadata for message in running.call.received)


async def test_an_event_that_is_not_the_last_is_passed_on_and_more_may_follow() -> None:
    part = RequestMetadata(payload=PayloadPart(offset=0)).SerializeToString()
    running = await exchange(
        [FlightData(app_metadata=part, data_body=b"code").SerializeToString(), batch(1), finish(1)]
    )
    assert await running.run() is LeaseOutcome.CLEAN
    assert (running.transfer.received_messages, running.transfer.finishes) == (3, 1)
    assert [bytes(message.data_body) for message in running.call.received[2:]] == [b"code", b"body", b""]


async def test_the_parts_of_a_batch_are_passed_on_and_count_as_none() -> None:
    part = RequestMetadata(part=BatchPart(body_bytes=10, offset=0)).SerializeToString()
    parts = [FlightData(app_metadata=part, data_body=b"parts").SerializeToString()] * 2
    running = await exchange([*parts, batch(1), finish(1, rows=6)])
    assert await running.run() is LeaseOutcome.CLEAN
    transfer = running.transfer
    assert (transfer.received_messages, transfer.parts, transfer.batches, transfer.rows) == (4, 2, 1, 6)
    assert [bytes(message.data_body) for message in running.call.received[2:]] == [b"parts", b"parts", b"body", b""]


async def test_who_has_sent_a_part_alone_is_waited_for() -> None:
    part = RequestMetadata(part=BatchPart(body_bytes=10, offset=0)).SerializeToString()
    message = FlightData(app_metadata=part, data_body=b"parts").SerializeToString()
    came = asyncio.Event()

    async def takes(worker: FakeWorker) -> None:
        while (await worker.receive()).kind is not FrameKind.BATCH:
            pass
        came.set()
        await silent(worker)

    running = await exchange([message], takes, ends=False)
    relaying = asyncio.create_task(running.run())
    await came.wait()
    assert running.relay.turn is Side.CLIENT
    relaying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await relaying


async def test_dictionaries_are_passed_on_and_count_as_none() -> None:
    running = await exchange([dictionary(), dictionary(), data(), dictionary(), data()], plain=True)
    assert await running.run() is LeaseOutcome.CLEAN
    transfer = running.transfer
    assert (transfer.received_messages, transfer.dictionaries, transfer.batches) == (5, 3, 2)
    assert bytes(running.call.received[1].data_header) == FlightData.FromString(dictionary()).data_header


async def test_who_has_sent_dictionaries_alone_is_waited_for() -> None:
    came = asyncio.Event()

    async def takes(worker: FakeWorker) -> None:
        while (await worker.receive()).kind is not FrameKind.BATCH:
            pass
        came.set()
        await silent(worker)

    running = await exchange([dictionary()], takes, ends=False, plain=True)
    relaying = asyncio.create_task(running.run())
    await came.wait()
    assert running.relay.turn is Side.CLIENT
    relaying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await relaying


async def test_a_message_with_data_is_a_batch_whatever_its_metadata_says() -> None:
    keepalive_with_data, finish_with_data, unreadable = (
        FlightData(data_header=b"h", app_metadata=metadata).SerializeToString()
        for metadata in (
            RequestMetadata(keep_alive=KeepAlive()).SerializeToString(),
            RequestMetadata(finish=Finish(batches=9, rows=9)).SerializeToString(),
            b"\xff",
        )
    )
    running = await exchange([keepalive_with_data, finish_with_data, unreadable, finish(3, rows=6)])
    assert await running.run() is LeaseOutcome.CLEAN
    transfer = running.transfer
    assert (transfer.batches, transfer.finishes, transfer.keep_alives, transfer.rows) == (3, 1, 0, 6)


@pytest.mark.parametrize("part", [{"data_header": b"h"}, {"data_body": b"b"}], ids=["header", "body"])
async def test_plain_flight_passes_on_whatever_has_any_data(part: dict[str, bytes]) -> None:
    running = await exchange([FlightData(**part).SerializeToString()], plain=True)
    assert await running.run() is LeaseOutcome.CLEAN
    assert (running.transfer.batches, running.transfer.keep_alives) == (1, 0)
    assert running.call.received[1] == FlightData(**part)


async def test_a_client_message_that_fits_no_frame_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("updraft_server.ipc.frames.MAX_METADATA_BYTES", 1_000)
    message = FlightData(data_header=b"h", app_metadata=bytes(1_001)).SerializeToString()
    error = await (await exchange([message], ends=False)).error()
    assert isinstance(error, LimitError)
    assert "larger than a worker accepts: a field is too large: 1001, 1, 0 bytes" in str(error)
