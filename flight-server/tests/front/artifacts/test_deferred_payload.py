# SPDX-License-Identifier: Apache-2.0
"""Deferred payloads, which clients send after admission, through a front with scripted workers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from artifact_clients import artifact_timeout
from fake_pool import FakePool, FakeWorker
from flight_messages import (
    SCHEMA,
    FlightData,
    all_replies,
    batch,
    command_request,
    echo_command,
    finish,
    reply_metadata,
)
from front_harness import Running, RunningFront
from signing import Driver, write_signers

from updraft.service.lifecycle import Event
from updraft.v1.exchange_pb2 import (
    DeferredPayload,
    ErrorKind,
    ExchangeCommand,
    Owner,
    PayloadPart,
    ReplyMetadata,
    RequestMetadata,
    SessionFunction,
    SessionPayload,
    TaskIdentity,
    Udf,
)
from updraft_server.front.request.request import MAX_COMMAND_BYTES
from updraft_server.ipc.frames import FrameKind

PICKLE = bytes(range(256)) * 2000


SESSION = SessionFunction(python_version="3.11", spark_version="4.3.0")
PAYLOAD = SessionPayload(udfs=[Udf(commands=[PICKLE])]).SerializeToString()
# Another task, because a task that holds a worker is never refused.
ANOTHER_TASK = TaskIdentity(owner=Owner(application_id="app-2"), task_attempt_id=1)


def part(data: bytes, offset: int = 0) -> bytes:
    metadata = RequestMetadata(payload=PayloadPart(offset=offset)).SerializeToString()
    return bytes(FlightData(app_metadata=metadata, data_body=data).SerializeToString())


def parts(data: bytes, size_bytes: int = 100_000) -> list[bytes]:
    return [part(data[start : start + size_bytes], start) for start in range(0, len(data), size_bytes)]


def envelope(size_bytes: int = len(PAYLOAD), **changes: Any) -> ExchangeCommand:
    return echo_command(deferred_payload=DeferredPayload(size_bytes=size_bytes), **{"session": SESSION, **changes})


class Client:
    """One exchange, message by message."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def event(self) -> str | None:
        """Return the event of the pool's next reply."""
        reply = reply_metadata(await asyncio.wait_for(self.call.read(), 60))
        return str(reply.WhichOneof("event"))

    async def send(self, *messages: bytes) -> None:
        for message in messages:
            await self.call.write(message)

    async def refusal(self) -> tuple[list[ReplyMetadata], grpc.StatusCode]:
        replies, error = await asyncio.wait_for(all_replies(self.call), 60)
        assert error is not None
        return [reply_metadata(reply) for reply in replies], error.code()


class Commands:
    """Worker script that records the payloads that workers got, and finishes when the test allows it."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.go_on = asyncio.Event()

    async def script(self, worker: FakeWorker) -> None:
        self.seen.append(bytes((await worker.receive()).data_body))
        await self.go_on.wait()
        while (await worker.receive()).kind is FrameKind.BATCH:
            pass
        await worker.send(FrameKind.DONE)


class Pool:
    def __init__(self, front: RunningFront, commands: Commands) -> None:
        self._front = front
        self.commands = commands

    def drain(self) -> None:
        self._front.front.lifecycle.handle(Event.DRAIN_REQUESTED)

    async def open(self, command: ExchangeCommand) -> Client:
        call = self._front.exchange(timeout=60)
        await call.write(command_request(command))
        return Client(call)


@pytest.fixture
def pool(running_front: Running) -> Any:
    @asynccontextmanager
    async def started(artifact_timeout_seconds: float = 5.0, **changes: Any) -> AsyncIterator[Pool]:
        commands = Commands()
        options = {"session_functions": "unsigned", **changes}
        with artifact_timeout(artifact_timeout_seconds):
            async with running_front(FakePool(1, commands.script), **options) as front:
                yield Pool(front, commands)
                commands.go_on.set()

    return started


async def test_a_worker_gets_the_payload_as_if_it_had_come_whole(pool: Any) -> None:
    async with pool() as running:
        running.commands.go_on.set()
        client = await running.open(envelope())
        assert await client.event() == "payload_wanted"
        await client.send(*parts(PAYLOAD))
        assert await client.event() == "admitted"
        await client.send(batch(1), finish(1))
        await client.call.done_writing()
        assert (await all_replies(client.call))[1] is None
        assert running.commands.seen == [PAYLOAD]


@pytest.mark.parametrize("sent", [PAYLOAD, bytes(len(PAYLOAD))], ids=["as it was signed", "another"])
async def test_a_signature_covers_what_comes_later(pool: Any, tmp_path: Path, sent: bytes) -> None:
    driver = Driver()
    signed = driver.signed(envelope(), SCHEMA.serialize().to_pybytes(), PAYLOAD)
    async with pool(session_functions="signed", **write_signers(tmp_path / "signers", [driver])) as running:
        running.commands.go_on.set()
        client = await running.open(signed)
        assert await client.event() == "payload_wanted"
        await client.send(*parts(sent))
        if sent == PAYLOAD:
            assert await client.event() == "admitted"
            client.call.cancel()
        else:
            replies, code = await client.refusal()
            assert "not the one that was signed" in replies[-1].error.message
            assert code is grpc.StatusCode.PERMISSION_DENIED
            assert not running.commands.seen


async def test_a_full_pool_does_not_ask_for_the_function(pool: Any) -> None:
    async with pool(queue_limit=0) as running:
        holder = await running.open(envelope())
        assert await holder.event() == "payload_wanted"
        await holder.send(*parts(PAYLOAD))
        assert await holder.event() == "admitted"
        replies, code = await (await running.open(envelope(task=ANOTHER_TASK))).refusal()
        assert [reply.WhichOneof("event") for reply in replies] == ["error"]
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        holder.call.cancel()


async def test_who_waits_in_the_queue_is_admitted_only_with_its_worker(pool: Any) -> None:
    async with pool() as running:
        first, second = await running.open(envelope()), await running.open(envelope(task=ANOTHER_TASK))
        for client in (first, second):
            assert await client.event() == "payload_wanted"
            await client.send(*parts(PAYLOAD))
        assert await first.event() == "admitted"
        admitted = asyncio.create_task(second.event())
        running.commands.go_on.set()
        await first.send(finish(0))
        await first.call.done_writing()
        assert (await all_replies(first.call))[1] is None
        assert await admitted == "admitted"
        second.call.cancel()


async def test_functions_that_are_on_their_way_count_against_the_memory_of_the_queue(
    pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft_server.front.process.QUEUE_BYTES", 1024 * 1024)
    async with pool() as running:
        first = await running.open(envelope(1_000_000))
        assert await first.event() == "payload_wanted"
        _, code = await (await running.open(envelope(1_000_000))).refusal()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        first.call.cancel()


async def test_a_drain_tells_a_client_that_sends_its_function(pool: Any) -> None:
    async with pool() as running:
        client = await running.open(envelope())
        assert await client.event() == "payload_wanted"
        running.drain()
        replies, code = await client.refusal()
        assert replies[-1].error.kind == ErrorKind.ERROR_KIND_POOL_UNAVAILABLE
        assert code is grpc.StatusCode.UNAVAILABLE


async def test_a_client_that_sends_byte_after_byte_loses_its_place(pool: Any) -> None:
    async with pool(artifact_timeout_seconds=1) as running:
        client = await running.open(envelope(65536))
        assert await client.event() == "payload_wanted"

        async def dribble() -> None:
            for offset in range(1000):
                await client.send(part(b"x", offset))
                await asyncio.sleep(0.1)

        dribbling = asyncio.create_task(dribble())
        replies, _ = await client.refusal()
        dribbling.cancel()
        assert "within 2 seconds" in replies[-1].error.message


@pytest.mark.parametrize(
    ("command", "sent", "kind", "words"),
    [
        (envelope(), [part(b"x", 1)], ErrorKind.ERROR_KIND_PROTOCOL, "continues at byte 1, not 0"),
        (envelope(3), [part(b"four")], ErrorKind.ERROR_KIND_PROTOCOL, "has 4 bytes, after 0 of the 3 bytes"),
        (envelope(), [part(b"")], ErrorKind.ERROR_KIND_PROTOCOL, "has 0 bytes, after 0 of the"),
        (envelope(), [batch(1)], ErrorKind.ERROR_KIND_PROTOCOL, "before the payload that the pool requested"),
        (envelope(0), [], ErrorKind.ERROR_KIND_LIMIT, "the function has 0 bytes"),
        (envelope(2**40), [], ErrorKind.ERROR_KIND_LIMIT, f"the function has {2**40} bytes"),
        (envelope(-1), [], ErrorKind.ERROR_KIND_PROTOCOL, "the function has -1 bytes"),
        (
            envelope(1, payload=b"x"),
            [],
            ErrorKind.ERROR_KIND_PROTOCOL,
            "both a payload and a deferred payload",
        ),
    ],
)
async def test_what_is_no_deferred_payload_is_refused(
    pool: Any, command: ExchangeCommand, sent: list[bytes], kind: ErrorKind, words: str
) -> None:
    async with pool() as running:
        client = await running.open(command)
        await client.send(*sent)
        replies, _ = await client.refusal()
        assert replies[-1].error.kind == kind
        assert words in replies[-1].error.message
        assert running.commands.seen == []


async def test_a_registered_function_is_never_deferred(pool: Any) -> None:
    async with pool() as running:
        command = echo_command(deferred_payload=DeferredPayload(size_bytes=1))
        replies, _ = await (await running.open(command)).refusal()
        assert "cannot be deferred" in replies[-1].error.message


async def test_a_pool_without_session_functions_does_not_ask(pool: Any) -> None:
    async with pool(session_functions="off") as running:
        replies, code = await (await running.open(envelope())).refusal()
        assert [reply.WhichOneof("event") for reply in replies] == ["error"]
        assert code is grpc.StatusCode.PERMISSION_DENIED


async def test_what_the_envelope_says_is_checked_before_its_payload_is_asked_for(pool: Any) -> None:
    session = SessionFunction(python_version="3.11", spark_version="4.3.0", environment={"LD_PRELOAD": "x"})
    async with pool() as running:
        replies, code = await (await running.open(envelope(session=session))).refusal()
        assert [reply.WhichOneof("event") for reply in replies] == ["error"]
        assert "LD_PRELOAD" in replies[-1].error.message
        assert code is grpc.StatusCode.PERMISSION_DENIED


async def test_a_command_that_is_large_because_its_payload_is_not_deferred_is_a_limit(pool: Any) -> None:
    async with pool() as running:
        command = echo_command(session=SESSION, payload=bytes(MAX_COMMAND_BYTES))
        assert await (await running.open(command)).refusal() == ([], grpc.StatusCode.INVALID_ARGUMENT)
        assert running.commands.seen == []
