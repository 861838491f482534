# SPDX-License-Identifier: Apache-2.0
"""Endings of a relay: errors of its client and its worker, and the worker's exit."""

import asyncio
import gc
import signal

import pytest
from fake_pool import FakeWorker
from flight_messages import FlightData, batch, finish, path_request
from relay_exchanges import MAX_MESSAGE_BYTES, consume, data, exchange, silent

from updraft.errors import (
    InternalError,
    LimitError,
    PoolUnavailableError,
    ProtocolError,
    UpdraftError,
    UserError,
    WorkerError,
)
from updraft.service.lifecycle import next_phase
from updraft.v1.exchange_pb2 import (
    Error,
    ErrorKind,
    Finish,
    ReplyMetadata,
)
from updraft_server.front.relay.relay import TRANSITIONS, RelayEvent, RelayPhase
from updraft_server.ipc.assignment import Assignment
from updraft_server.ipc.frames import FrameKind
from updraft_server.pool.leases import LeaseOutcome
from updraft_server.pool.worker_events import WorkerDeath


async def test_what_the_worker_says_counts_when_its_client_fails_in_the_same_moment() -> None:
    async def fails(worker: FakeWorker) -> None:
        await worker.send(FrameKind.FAILED, Error(kind=ErrorKind.ERROR_KIND_USER, message="no").SerializeToString())

    running = await exchange([path_request("echo")], fails)
    # Both failures have happened before the relay looks at either.
    await asyncio.sleep(0)
    assert isinstance(await running.error(), UserError)


async def test_a_worker_that_lives_on_keeps_nothing_of_a_relay_that_has_ended() -> None:
    running = await exchange([finish(0)])
    await running.run()
    assert running.lease.death.remove_done_callback(running.relay._worker_died) == 0
    assert running.relay.worker == running.lease.worker


async def test_a_worker_that_is_done_before_its_client_is_not_used_again() -> None:
    async def hasty(worker: FakeWorker) -> None:
        await worker.receive()
        await worker.send(FrameKind.DONE)

    running = await exchange([], hasty, ends=False)
    assert await running.run() is LeaseOutcome.BROKEN
    assert running.transfer.rows == 0


async def test_a_worker_that_retires_is_given_back_as_such() -> None:
    async def retires(worker: FakeWorker) -> None:
        await consume(worker)
        await worker.send(FrameKind.RETIRED)

    running = await exchange([finish(0, rows=4)], retires)
    assert await running.run() is LeaseOutcome.RETIRED
    assert running.transfer.rows == 4


@pytest.mark.parametrize(
    ("messages", "kind", "says"),
    [
        ([batch(1)], ProtocolError, "ended its stream without finish"),
        ([finish(0), batch(1)], ProtocolError, "arrived after finish"),
        ([path_request("echo")], ProtocolError, "a second flight descriptor"),
        ([FlightData(app_metadata=b"\xff").SerializeToString()], ProtocolError, "is not RequestMetadata"),
        ([data(MAX_MESSAGE_BYTES)], LimitError, f"the limit of this pool is {MAX_MESSAGE_BYTES}"),
    ],
    ids=["no finish", "after finish", "descriptor", "metadata", "size"],
)
async def test_a_client_that_breaks_the_rules_is_told_which(
    messages: list[bytes], kind: type[UpdraftError], says: str
) -> None:
    error = await (await exchange(messages)).error()
    assert type(error) is kind
    assert says in str(error)


async def test_what_fails_in_the_worker_is_the_clients_error() -> None:
    async def fails(worker: FakeWorker) -> None:
        await worker.receive()
        failure = Error(kind=ErrorKind.ERROR_KIND_USER, message="ValueError: no", traceback="at home")
        await worker.send(FrameKind.FAILED, failure.SerializeToString())

    error = await (await exchange([batch(1)], fails, ends=False)).error()
    assert isinstance(error, UserError)
    assert "ValueError: no" in str(error)


async def test_a_worker_that_breaks_the_rules_is_a_defect_of_the_pool() -> None:
    async def confused(worker: FakeWorker) -> None:
        await worker.send(FrameKind.COMMAND)

    error = await (await exchange([], confused, ends=False)).error()
    assert isinstance(error, InternalError)
    assert "may not send COMMAND" in str(error)


async def test_a_failure_that_is_no_error_message_is_a_defect_of_the_pool() -> None:
    async def garbled(worker: FakeWorker) -> None:
        await worker.send(FrameKind.FAILED, b"\xff")

    assert isinstance(await (await exchange([], garbled, ends=False)).error(), InternalError)


@pytest.mark.parametrize(
    "kind",
    [
        ErrorKind.ERROR_KIND_WORKER,
        ErrorKind.ERROR_KIND_POOL_FULL,
        ErrorKind.ERROR_KIND_DEADLINE,
        ErrorKind.ERROR_KIND_UNAUTHENTICATED,
        ErrorKind.ERROR_KIND_PERMISSION_DENIED,
        ErrorKind.ERROR_KIND_QUOTA,
    ],
)
async def test_a_worker_does_not_speak_for_the_front(kind: ErrorKind) -> None:
    async def lies(worker: FakeWorker) -> None:
        await worker.send(FrameKind.FAILED, Error(kind=kind, message="forged").SerializeToString())

    error = await (await exchange([], lies, ends=False)).error()
    assert isinstance(error, InternalError)
    assert "that workers cannot have" in str(error)


async def test_a_worker_tells_how_a_model_process_has_ended_and_has_not_died() -> None:
    async def tells(worker: FakeWorker) -> None:
        lost = Error(kind=ErrorKind.ERROR_KIND_WORKER, message="the model process was killed by SIGSEGV")
        await worker.send(FrameKind.FAILED, lost.SerializeToString())

    running = await exchange([], tells, ends=False, batched=True)
    error = await running.error()
    assert isinstance(error, WorkerError)
    assert error.message == "the model process was killed by SIGSEGV"
    assert running.relay.end_state.reported


@pytest.mark.parametrize("consumed", [0, 1, 300, (1 << 64) - 1])
async def test_a_worker_that_breaks_after_its_last_message_causes_no_error(consumed: int) -> None:
    async def dies(worker: FakeWorker) -> None:
        last = ReplyMetadata(consumed=consumed, finish=Finish(), log_lines=["logged"])
        await worker.send(FrameKind.MESSAGE, last.SerializeToString())
        await worker.send(FrameKind.COMMAND)

    assert await (await exchange([finish(0)], dies)).run() is LeaseOutcome.BROKEN


async def test_what_a_worker_makes_up_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("updraft_server.front.relay.relay.ReplyMetadata", None)

    async def lies(worker: FakeWorker) -> None:
        for metadata in (b"\x32\x00" * 10, b"\x08\xff", b"\xff" * 20, b""):
            await worker.send(FrameKind.MESSAGE, metadata)
        await worker.send(FrameKind.COMMAND)

    error = await (await exchange([], lies, ends=False)).error()
    assert "may not send COMMAND" in str(error)


async def test_a_worker_that_left_its_socket_to_another_process_is_dead_all_the_same() -> None:
    running = await exchange([batch(1)], silent, ends=False)
    asyncio.get_running_loop().call_soon(running.lease.death.set_result, WorkerDeath(-signal.SIGKILL))
    assert isinstance(await running.error(), WorkerError)
    assert running.relay.end_state.lost_worker


async def test_a_worker_that_closes_its_socket_and_lives_on_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def closes(worker: FakeWorker) -> None:
        worker.close()

    monkeypatch.setattr("updraft_server.front.relay.relay._EXIT_STATUS_TIMEOUT_SECONDS", 0.05)
    error = await (await exchange([], closes, ends=False)).error()
    assert isinstance(error, WorkerError)
    assert "closed its socket while it ran the function f" in str(error)


async def test_a_result_larger_than_a_message_is_refused_with_its_size() -> None:
    async def large(worker: FakeWorker) -> None:
        await worker.send(FrameKind.MESSAGE, b"", b"", bytes(MAX_MESSAGE_BYTES + 1))

    error = await (await exchange([], large, ends=False)).error()
    assert isinstance(error, LimitError)
    assert f"of {MAX_MESSAGE_BYTES + 1} bytes exceeds the maximum message size, {MAX_MESSAGE_BYTES} bytes" in str(error)


async def test_whoever_ends_a_relay_says_why() -> None:
    running = await exchange([batch(1)], silent, ends=False)
    asyncio.get_running_loop().call_soon(running.relay.end, PoolUnavailableError("the pool is draining"))
    assert "the pool is draining" in str(await running.error())
    running.relay.end(PoolUnavailableError("the exchange has already ended"))


async def test_the_workers_socket_is_not_watched_once_the_relay_has_ended() -> None:
    async def watched_at_the_end() -> bool:
        with pytest.raises(PoolUnavailableError):
            await running.relay.run(Assignment())
        return asyncio.get_running_loop().remove_reader(running.lease.socket)

    running = await exchange([], silent, ends=False)
    relaying = asyncio.create_task(watched_at_the_end())
    await running.call.has_received(1)
    await asyncio.sleep(0)
    running.relay.end(PoolUnavailableError("the pool is draining"))
    assert not await relaying
    running.lease.release(LeaseOutcome.BROKEN)


async def test_what_a_client_is_taking_when_its_exchange_ends_is_let_through_and_nothing_after_it() -> None:
    async def two_replies(worker: FakeWorker) -> None:
        for _ in range(2):
            await worker.send(FrameKind.MESSAGE, b"", b"schema")
        await silent(worker)

    running = await exchange([], two_replies, ends=False, plain=True)
    await running.relay.settle()
    running.call.reads.clear()
    relaying = asyncio.create_task(running.error())
    await running.call.has_received(1)
    running.relay.end(PoolUnavailableError("the pool is draining"))
    assert "draining" in str(await relaying)
    asyncio.get_running_loop().call_soon(running.call.reads.set)
    await running.relay.settle()
    assert (len(running.call.received), running.call.taken) == (1, 1)


async def test_a_client_that_never_reads_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("updraft_server.front.relay.relay.LAST_MESSAGE_TIMEOUT_SECONDS", 0.05)
    running = await exchange([], silent, ends=False)
    running.call.reads.clear()
    relaying = asyncio.create_task(running.error())
    await running.call.has_received(1)
    running.relay.end(PoolUnavailableError("the pool is draining"))
    await relaying
    async with asyncio.timeout(60):
        await running.relay.settle()
    assert running.call.given_up == 1


@pytest.mark.parametrize(
    ("phase", "event", "following"),
    [
        (RelayPhase.ASSIGNING, RelayEvent.ASSIGNED, RelayPhase.RELAYING),
        (RelayPhase.RELAYING, RelayEvent.INPUT_ENDED, RelayPhase.ANSWERING),
        *((phase, RelayEvent.OUTCOME_KNOWN, RelayPhase.SETTLING) for phase in RelayPhase),
    ],
)
def test_events_move_a_relay_through_its_phases(phase: RelayPhase, event: RelayEvent, following: RelayPhase) -> None:
    assert next_phase(TRANSITIONS, phase, event) is following


@pytest.mark.parametrize(
    ("phase", "event"),
    [
        (RelayPhase.ASSIGNING, RelayEvent.INPUT_ENDED),
        (RelayPhase.RELAYING, RelayEvent.ASSIGNED),
        (RelayPhase.ANSWERING, RelayEvent.INPUT_ENDED),
        (RelayPhase.SETTLING, RelayEvent.ASSIGNED),
    ],
)
def test_an_event_that_cannot_happen_is_named(phase: RelayPhase, event: RelayEvent) -> None:
    with pytest.raises(ValueError, match=f"{event.value} cannot happen while {phase.value}"):
        next_phase(TRANSITIONS, phase, event)


@pytest.mark.parametrize("has_finished", [True, False])
async def test_a_worker_that_dies_after_its_last_message_fails_no_client(has_finished: bool) -> None:
    """The worker is killed between its finish and DONE: the client has all replies and expects no further message."""
    reply = ReplyMetadata(finish=Finish(batches=0, rows=4)) if has_finished else ReplyMetadata(consumed=1)

    async def finishes_and_dies(worker: FakeWorker) -> None:
        await consume(worker)
        await worker.send(FrameKind.MESSAGE, reply.SerializeToString())
        running.lease.die(WorkerDeath(-9))

    running = await exchange([finish(0, rows=4)], finishes_and_dies)
    if has_finished:
        assert await running.run() is LeaseOutcome.BROKEN
        assert running.transfer.rows == 4
    else:
        assert isinstance(await running.error(), WorkerError)


async def test_a_reply_that_cannot_be_sent_any_more_is_no_stray_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python itself would log an exception that is never retrieved, and not in the log's format."""
    strays: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: strays.append(context))
    writing, fails = asyncio.Event(), asyncio.Event()

    async def write(_message: bytes) -> None:
        writing.set()
        await fails.wait()
        raise RuntimeError("the call is over")

    async def vanishes() -> None:
        running = await exchange([batch(1)], ends=False)
        monkeypatch.setattr(running.call, "write", write)
        task = asyncio.create_task(running.run())
        await writing.wait()
        task.cancel()
        await asyncio.wait({task})
        fails.set()
        for _ in range(10):
            await asyncio.sleep(0)
        await running.relay.settle()

    await vanishes()
    gc.collect()
    assert not strays
