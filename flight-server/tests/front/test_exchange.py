# SPDX-License-Identifier: Apache-2.0
import asyncio
from typing import Any

import grpc
import pytest
from fake_pool import FakePool, FakeWorker, echo
from flight_messages import (
    SCHEMA,
    FlightData,
    all_replies,
    batch,
    command_request,
    echo_command,
    finish,
    path_request,
    reply_metadata,
)
from front_harness import Running

from updraft.errors import UserError
from updraft.v1.exchange_pb2 import ErrorKind, SessionFunction
from updraft_server.ipc.frames import FrameKind
from updraft_server.pool.leases import LeaseOutcome
from updraft_server.pool.worker_events import WorkerDeath

SIGKILL = WorkerDeath(-9)
# Batches of 1 MB each: twice as much as all buffers on the way to a worker hold.
ECHOED_BATCHES = 128


async def reads_nothing(worker: FakeWorker) -> None:
    await asyncio.Event().wait()


async def reads_the_command(worker: FakeWorker) -> None:
    await worker.receive()
    await worker.send(FrameKind.MESSAGE, b"", SCHEMA.serialize().to_pybytes())
    await asyncio.Event().wait()


async def fails(worker: FakeWorker) -> None:
    await worker.receive()
    error = UserError("boom", exception_class="builtins.KeyError", traceback="Traceback ...", sequence=1)
    await worker.send(FrameKind.FAILED, error.to_message().SerializeToString())


async def sends_garbage(worker: FakeWorker) -> None:
    await worker.receive()
    await worker.send(FrameKind.READY)


async def ends_early(worker: FakeWorker) -> None:
    await worker.receive()
    await worker.send(FrameKind.DONE)


async def hangs_up(worker: FakeWorker) -> None:
    await worker.receive()
    worker.close()


async def released(pool: FakePool, lease: int = 0) -> LeaseOutcome:
    """Wait until a lease is released and return its outcome."""
    changed = asyncio.Event()
    pool.subscribe(changed.set)
    while len(pool.leases) <= lease or pool.leases[lease].outcome is None:
        changed.clear()
        await asyncio.wait_for(changed.wait(), 60)
    outcome = pool.leases[lease].outcome
    assert outcome is not None
    return outcome


async def failure(call: Any) -> tuple[list[bytes], grpc.aio.AioRpcError]:
    replies, error = await asyncio.wait_for(all_replies(call), 60)
    assert error is not None
    return replies, error


async def test_an_exchange_by_path_gets_every_batch_back_without_metadata(running_front: Running) -> None:
    async with running_front(FakePool()) as front:
        call = front.exchange()
        await call.write(path_request("echo"))
        sent = [FlightData(data_header=b"h", data_body=bytes([number]) * 3_000_000) for number in range(5)]
        for message in sent:
            await call.write(message.SerializeToString())
            if message is sent[0]:
                schema = FlightData.FromString(await call.read())
            assert FlightData.FromString(await call.read()) == message
        await call.done_writing()
        assert (await all_replies(call)) == ([], None)
        assert schema.data_header == SCHEMA.serialize().to_pybytes()
        assert await released(front.pool) is LeaseOutcome.CLEAN


async def test_an_exchange_by_command_passes_metadata_through(running_front: Running) -> None:
    async with running_front(FakePool()) as front:
        call = front.exchange()
        for message in (command_request(echo_command()), batch(1), batch(2), finish(2)):
            await call.write(message)
        await call.done_writing()
        replies, error = await all_replies(call)
        assert error is None
        assert reply_metadata(replies[0]).WhichOneof("event") == "admitted"
        assert replies[2:] == [batch(1), batch(2), finish(2)]


async def test_a_descriptor_may_come_before_the_schema_as_flight_libraries_send_it(running_front: Running) -> None:
    async with running_front(FakePool()) as front:
        call = front.exchange()
        request = FlightData.FromString(path_request("echo"))
        await call.write(FlightData(flight_descriptor=request.flight_descriptor).SerializeToString())
        await call.write(request.SerializeToString())
        await call.done_writing()
        replies, error = await all_replies(call)
        assert error is None
        assert len(replies) == 1


async def test_what_a_function_raises_reaches_the_client_in_band_and_as_unknown(running_front: Running) -> None:
    async with running_front(FakePool(script=fails)) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        replies, error = await failure(call)
        in_band = reply_metadata(replies[-1]).error
        assert (in_band.kind, in_band.exception_class) == (ErrorKind.ERROR_KIND_USER, "builtins.KeyError")
        assert (error.code(), error.details()) == (grpc.StatusCode.UNKNOWN, "boom")
        assert await released(front.pool) is LeaseOutcome.BROKEN


async def test_a_plain_client_gets_a_failure_as_status_alone(running_front: Running) -> None:
    async with running_front(FakePool(script=fails)) as front:
        call = front.exchange()
        await call.write(path_request("echo"))
        replies, error = await failure(call)
        assert replies == []
        assert error.code() is grpc.StatusCode.UNKNOWN


async def test_a_killed_worker_ends_its_exchange_as_aborted_and_says_how_it_died(running_front: Running) -> None:
    async with running_front(FakePool(script=reads_the_command)) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        await call.read()
        front.pool.leases[0].die(SIGKILL)
        replies, error = await failure(call)
        assert reply_metadata(replies[-1]).error.kind == ErrorKind.ERROR_KIND_WORKER
        assert error.code() is grpc.StatusCode.ABORTED
        assert str(SIGKILL) in error.details()


async def test_a_worker_that_hangs_up_and_lives_on_ends_its_exchange(running_front: Running) -> None:
    async with running_front(FakePool(script=hangs_up)) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        _, error = await failure(call)
        assert error.code() is grpc.StatusCode.ABORTED
        assert await released(front.pool) is LeaseOutcome.BROKEN


async def test_a_death_is_noticed_when_a_child_of_the_worker_keeps_the_socket_open(running_front: Running) -> None:
    async with running_front(FakePool(script=reads_the_command)) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        await call.read()
        front.pool.leases[0].death.set_result(SIGKILL)
        _, error = await failure(call)
        assert error.code() is grpc.StatusCode.ABORTED


async def test_a_cancelled_call_frees_its_worker(running_front: Running) -> None:
    async with running_front(FakePool(script=reads_the_command)) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        await call.read()
        call.cancel()
        assert await released(front.pool) is LeaseOutcome.CANCELLED


async def test_a_cancelled_call_frees_a_worker_that_reads_nothing(running_front: Running) -> None:
    async with running_front(FakePool(script=reads_nothing)) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        writing = asyncio.create_task(write_without_end(call))
        await wait_for_lease(front.pool)
        call.cancel()
        assert await released(front.pool) is LeaseOutcome.CANCELLED
        await asyncio.gather(writing, return_exceptions=True)


async def write_without_end(call: Any) -> None:
    sequence = 0
    while True:
        sequence += 1
        await call.write(batch(sequence, bytes(1_000_000)))


async def wait_for_lease(pool: FakePool) -> None:
    leased = asyncio.Event()
    pool.subscribe(leased.set)
    if not pool.leases:
        await asyncio.wait_for(leased.wait(), 60)


async def test_a_worker_that_reads_nothing_holds_the_client_back(running_front: Running) -> None:
    scripts = iter((reads_nothing, echo))
    async with running_front(FakePool(2, script=lambda worker: next(scripts)(worker))) as front:
        held_back = front.exchange()
        await held_back.write(command_request(echo_command()))
        await held_back.read()
        writing = asyncio.create_task(write_without_end(held_back))
        # Send as much as an unthrottled client sends meanwhile; a clock would fail on a slow machine.
        call = front.exchange()
        await call.write(command_request(echo_command()))
        for message in (batch(sequence, bytes(1_000_000)) for sequence in range(1, ECHOED_BATCHES + 1)):
            await call.write(message)
            while await call.read() != message:
                pass
        received_bytes = front.front.activity.transferred().received_bytes
        assert received_bytes - ECHOED_BATCHES * 1_000_000 < 64 * 1024 * 1024
        assert not writing.done()
        for ended in (held_back, call):
            ended.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def test_the_clients_deadline_frees_the_worker(running_front: Running) -> None:
    async with running_front(FakePool(script=reads_the_command)) as front:
        call = front.exchange(timeout=3.0)
        await call.write(command_request(echo_command()))
        _, error = await failure(call)
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await released(front.pool) is LeaseOutcome.CANCELLED


async def test_a_silent_call_ends_after_the_first_message_timeout(
    running_front: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft.service.exchange.FIRST_MESSAGE_TIMEOUT_SECONDS", 0.2)
    async with running_front(FakePool()) as front:
        _, error = await failure(front.exchange())
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert not front.pool.leases


@pytest.mark.parametrize(
    ("messages", "code", "says"),
    [
        ([b"\xff\xff\xff"], grpc.StatusCode.INVALID_ARGUMENT, "not a protobuf message"),
        ([b""], grpc.StatusCode.INVALID_ARGUMENT, "no flight descriptor"),
        ([path_request()], grpc.StatusCode.INVALID_ARGUMENT, "0 parts"),
        ([path_request("nope")], grpc.StatusCode.NOT_FOUND, "echo 1"),
        ([path_request("echo", "99")], grpc.StatusCode.NOT_FOUND, "echo 1"),
        ([command_request(echo_command(protocol_version=7))], grpc.StatusCode.FAILED_PRECONDITION, "version 7"),
        ([command_request(echo_command(registered=None))], grpc.StatusCode.INVALID_ARGUMENT, "names no function"),
        (
            [command_request(echo_command(session=SessionFunction()))],
            grpc.StatusCode.PERMISSION_DENIED,
            "--session-functions unsigned or signed",
        ),
        ([command_request(echo_command()), b"\x12\xff"], grpc.StatusCode.INVALID_ARGUMENT, "not a protobuf message"),
        ([command_request(echo_command()), batch(1)], grpc.StatusCode.INVALID_ARGUMENT, "without finish"),
        ([command_request(echo_command()), finish(0), batch(1)], grpc.StatusCode.INVALID_ARGUMENT, "after finish"),
        (
            [command_request(echo_command()), command_request(echo_command())],
            grpc.StatusCode.INVALID_ARGUMENT,
            "second flight descriptor",
        ),
        (
            [command_request(echo_command()), batch(1, bytes(1_100_000))],
            grpc.StatusCode.INVALID_ARGUMENT,
            "--max-message-bytes",
        ),
    ],
)
async def test_a_bad_exchange_gets_a_clear_error_and_the_pool_lives(
    running_front: Running, messages: list[bytes], code: grpc.StatusCode, says: str
) -> None:
    async with running_front(FakePool(), max_message_bytes=1024 * 1024) as front:
        call = front.exchange()
        for message in messages:
            await call.write(message)
        await call.done_writing()
        _, error = await failure(call)
        assert error.code() is code
        assert says in error.details()
        again = front.exchange()
        await again.write(path_request("echo"))
        await again.done_writing()
        assert (await all_replies(again))[1] is None


async def test_a_session_function_for_another_python_never_takes_a_worker(
    running_front: Running,
) -> None:
    function = SessionFunction(python_version="3.13", spark_version="4.3.0")
    async with running_front(FakePool(), session_functions="unsigned") as front:
        call = front.exchange()
        await call.write(command_request(echo_command(session=function)))
        replies, error = await failure(call)
        assert reply_metadata(replies[-1]).error.kind == ErrorKind.ERROR_KIND_VERSION
        assert "3.13" in error.details()
        assert "3.11" in error.details()
        assert not front.pool.leases


async def test_a_worker_that_breaks_the_frames_is_replaced_and_the_client_told(running_front: Running) -> None:
    async with running_front(FakePool(script=sends_garbage)) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        _, error = await failure(call)
        assert error.code() is grpc.StatusCode.INTERNAL
        assert await released(front.pool) is LeaseOutcome.BROKEN


async def test_a_worker_that_is_done_before_the_client_is_not_reused(running_front: Running) -> None:
    async with running_front(FakePool(script=ends_early)) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        assert (await all_replies(call))[1] is None
        assert await released(front.pool) is LeaseOutcome.BROKEN


async def test_a_full_queue_refuses_with_a_hint_when_to_come_again(
    running_front: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft_server.front.process.RETRY_AFTER_MILLISECONDS", 77)
    async with running_front(FakePool(script=reads_the_command), queue_limit=0) as front:
        holder = front.exchange()
        await holder.write(command_request(echo_command()))
        await holder.read()
        call = front.exchange()
        await call.write(path_request("echo"))
        _, error = await failure(call)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert ("retry-after-ms", "77") in tuple(error.trailing_metadata())
        holder.cancel()


async def test_a_message_far_beyond_the_limit_ends_its_call_and_not_the_pool(running_front: Running) -> None:
    async with running_front(FakePool(), max_message_bytes=1024 * 1024) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        await call.write(batch(1, bytes(3 * 1024 * 1024)))
        _, error = await failure(call)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in str(error.details())
        assert await released(front.pool) is not LeaseOutcome.CLEAN


async def test_siblings_of_one_task_run_at_once_on_a_pool_of_one_worker(running_front: Running) -> None:
    async with running_front(FakePool(script=reads_the_command)) as front:
        calls = [front.exchange() for _ in range(3)]
        for call in calls:
            await call.write(command_request(echo_command()))
            await asyncio.wait_for(call.read(), 60)
        for call in calls:
            call.cancel()


async def test_a_worker_that_ran_out_of_time_for_a_batch_is_a_deadline_that_names_its_limit(
    running_front: Running,
) -> None:
    pool = FakePool(script=reads_the_command)
    async with running_front(pool, batch_timeout_seconds=2.5) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        await call.read()
        pool.leases[0].die(WorkerDeath(-14))
        replies, error = await failure(call)
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "2.5 seconds" in error.details()
        assert "--batch-timeout-seconds" in error.details()
        assert reply_metadata(replies[-1]).error.kind == ErrorKind.ERROR_KIND_DEADLINE
