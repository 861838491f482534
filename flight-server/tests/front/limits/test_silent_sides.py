# SPDX-License-Identifier: Apache-2.0
"""Silence limits and whose turn it is; the tests make the looks, four to a limit, so nothing waits."""

import asyncio
import itertools
from typing import Any

import grpc
import pytest
from fake_pool import FakePool
from flight_messages import (
    FlightData,
    all_replies,
    batch,
    echo_command,
    finish,
    keep_alive,
    path_request,
    reply_metadata,
)
from front_harness import Running, RunningFront
from looks import FAR_APART, LOOKS_TO_A_LIMIT, Script, clocks_looked_at, looked_at, opened, written

from updraft.v1.control_pb2 import FunctionDescription, FunctionKind
from updraft.v1.exchange_pb2 import ErrorKind, ReplyMetadata, SessionFunction
from updraft_server.front.limits.running_exchanges import RunningExchanges
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.worker_usage import WorkerUsage


@pytest.fixture
def looks_that_tests_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the front from looking on its own within a test; each look counts a quarter of a second."""

    async def makes_none(_self: RunningExchanges) -> None:
        return

    monkeypatch.setattr(RunningExchanges, "watch_limits", makes_none)
    monkeypatch.setattr(RunningExchanges, "watch_clocks", makes_none)


async def heard(front: RunningFront, keep_alives: int) -> None:
    for _ in range(20_000):
        if front.front.activity.transferred().keep_alives >= keep_alives:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"keepalive {keep_alives} was not heard")


async def error_of(call: Any) -> str:
    replies, error = await asyncio.wait_for(all_replies(call), 60)
    assert error is not None
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert reply_metadata(replies[-1]).error.kind == ErrorKind.ERROR_KIND_DEADLINE
    return str(error.details())


async def test_a_client_that_says_nothing_is_ended_when_the_pool_waits_for_it(running_front: Running) -> None:
    script = Script()
    async with running_front(FakePool(script=script), **FAR_APART) as front:
        call = await opened(front, script)
        await looked_at(front)
        assert "the client was silent for 4000 seconds" in await error_of(call)


async def test_a_client_that_sends_keepalives_may_take_its_time(running_front: Running) -> None:
    script = Script()
    async with running_front(FakePool(script=script), **FAR_APART) as front:
        call = await opened(front, script)
        for number in range(1, 4):
            await looked_at(front, LOOKS_TO_A_LIMIT - 1)
            await call.write(keep_alive())
            await heard(front, number)
        # The worker does not get the keepalives.
        await call.write(batch(1))
        await script.got(FrameKind.BATCH)
        script.replies.put_nowait(ReplyMetadata(consumed=1))
        assert reply_metadata(await call.read()).consumed == 1
        call.cancel()


async def test_a_client_whose_batch_is_worked_on_need_not_say_anything(running_front: Running) -> None:
    script = Script()
    async with running_front(FakePool(script=script), client_silence_seconds=4_000, worker_silence_seconds=0) as front:
        call = await opened(front, script)
        await call.write(batch(1))
        await script.got(FrameKind.BATCH)
        await looked_at(front)
        # The first credit means that the function started the batch, the second that it wants another one.
        script.replies.put_nowait(ReplyMetadata(consumed=1))
        assert reply_metadata(await call.read()).consumed == 1
        await written(front)
        await looked_at(front)
        script.replies.put_nowait(ReplyMetadata(consumed=1))
        assert reply_metadata(await call.read()).consumed == 1
        await written(front)
        await looked_at(front)
        assert "the client was silent" in await error_of(call)


async def test_a_worker_that_gives_nothing_and_does_nothing_is_ended(running_front: Running) -> None:
    script = Script()
    async with running_front(FakePool(script=script), **FAR_APART) as front:
        call = await opened(front, script)
        await call.write(batch(1))
        await script.got(FrameKind.BATCH)
        await looked_at(front)
        message = await error_of(call)
        assert "used no CPU time for 4000 seconds" in message
        assert "--worker-silence-seconds" in message


async def test_a_worker_that_does_not_finish_after_the_last_batch_is_ended(running_front: Running) -> None:
    script = Script()
    async with running_front(FakePool(script=script), **FAR_APART) as front:
        call = await opened(front, script)
        await call.write(finish(0))
        await call.done_writing()
        await script.got(FrameKind.BATCH)
        await script.got(FrameKind.END)
        await looked_at(front)
        assert "the function echo neither accepted nor returned" in await error_of(call)


async def test_a_worker_that_uses_the_processor_may_take_its_time(running_front: Running) -> None:
    ticks = itertools.count()
    script = Script()
    pool = FakePool(script=script)
    pool.usage = lambda: WorkerUsage(0, str(next(ticks)))
    async with running_front(pool, **FAR_APART) as front:
        call = await opened(front, script)
        await call.write(batch(1))
        await script.got(FrameKind.BATCH)
        await looked_at(front)
        script.replies.put_nowait(ReplyMetadata(consumed=1))
        assert reply_metadata(await call.read()).consumed == 1
        call.cancel()


async def test_a_worker_that_cannot_be_measured_is_not_called_idle(
    running_front: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_workers: object) -> dict[str, WorkerUsage]:
        return {}

    script = Script()
    pool = FakePool(script=script)
    monkeypatch.setattr(pool, "measure", nothing)
    async with running_front(pool, **FAR_APART) as front:
        call = await opened(front, script)
        await call.write(batch(1))
        await script.got(FrameKind.BATCH)
        await looked_at(front)
        script.replies.put_nowait(ReplyMetadata(consumed=1))
        assert reply_metadata(await call.read()).consumed == 1
        call.cancel()


async def test_a_worker_without_work_waits_for_its_client_as_long_as_that_is_there(running_front: Running) -> None:
    script = Script()
    async with running_front(FakePool(script=script), client_silence_seconds=0, worker_silence_seconds=4_000) as front:
        call = await opened(front, script)
        await looked_at(front)
        await call.write(batch(1))
        await script.got(FrameKind.BATCH)
        call.cancel()


async def test_a_message_without_data_is_the_keepalive_of_plain_flight(running_front: Running) -> None:
    async with running_front(FakePool(), **FAR_APART) as front:
        call = front.exchange()
        await call.write(path_request("echo"))
        await call.read()
        await looked_at(front, LOOKS_TO_A_LIMIT - 1)
        await call.write(FlightData().SerializeToString())
        await heard(front, 1)
        await looked_at(front, LOOKS_TO_A_LIMIT - 1)
        data = FlightData(data_header=b"h", data_body=b"b")
        await call.write(data.SerializeToString())
        assert FlightData.FromString(await call.read()) == data
        await call.done_writing()
        assert (await all_replies(call)) == ([], None)


async def test_the_front_looks_by_itself(running_front: Running) -> None:
    script = Script()
    async with running_front(FakePool(script=script), client_silence_seconds=0.2) as front:
        call = await opened(front, script)
        assert "--client-silence-seconds" in await error_of(call)


async def test_a_function_that_uses_too_much_processor_time_for_a_batch_is_ended(running_front: Running) -> None:
    script = Script()
    pool = FakePool(script=script)
    used = 1_000.0
    pool.usage = lambda: WorkerUsage(0, "", processor_seconds=used)
    async with running_front(pool, batch_cpu_seconds=2_000) as front:
        call = await opened(front, script)
        await call.write(batch(1))
        await script.got(FrameKind.BATCH)
        await front.front.running.look_at_limits()
        used += 2_000
        await front.front.running.look_at_limits()
        script.replies.put_nowait(ReplyMetadata(consumed=1))
        assert reply_metadata(await call.read()).consumed == 1
        await written(front)
        await front.front.running.look_at_limits()
        used += 2_000.5
        await front.front.running.look_at_limits()
        replies, error = await asyncio.wait_for(all_replies(call), 60)
    assert error is not None
    assert error.details() == (
        "the function echo used 4000.5 seconds of CPU time for one batch, the limit is 2000, and its worker was ended: "
        "send smaller batches, or raise --batch-cpu-seconds of the pool"
    )
    assert reply_metadata(replies[-1]).error.kind == ErrorKind.ERROR_KIND_LIMIT


@pytest.mark.usefixtures("looks_that_tests_make")
async def test_a_worker_that_has_lifted_its_clock_is_ended_after_twice_its_time(running_front: Running) -> None:
    script = Script()
    limits = {"client_silence_seconds": 0, "worker_silence_seconds": 0, "batch_timeout_seconds": 1}
    async with running_front(FakePool(script=script), **limits) as front:
        call = await opened(front, script)
        await call.write(batch(1))
        await script.got(FrameKind.BATCH)
        [watched] = front.front.running._watched
        # The worker's own timer would end it first.
        clocks_looked_at(front, 3)
        assert not watched.relay.end_state.exceeded_limit
        clocks_looked_at(front, 0.5)
        assert "the function echo worked for more than 1 seconds on one batch" in await error_of(call)


@pytest.mark.usefixtures("looks_that_tests_make")
async def test_a_function_of_a_session_has_time_to_import_until_it_has_taken_a_batch(running_front: Running) -> None:
    script = Script()
    limits = {"session_functions": "unsigned", "batch_timeout_seconds": 1}
    async with running_front(FakePool(script=script), client_silence_seconds=0, **limits) as front:
        session = SessionFunction(python_version="3.11", spark_version="4.3.0", eval_type=200)
        call = await opened(front, script, echo_command(session=session, payload=b"pickled"))
        await call.write(batch(1))
        await script.got(FrameKind.BATCH)
        [watched] = front.front.running._watched
        clocks_looked_at(front, 32)
        # It took the first batch; then its worker claims otherwise.
        for said, seconds in ((ReplyMetadata(consumed=1), 3), (ReplyMetadata(log_lines=["it imports"]), 0.5)):
            assert not watched.relay.end_state.exceeded_limit
            script.replies.put_nowait(said)
            await asyncio.wait_for(call.read(), 60)
            await written(front)
            clocks_looked_at(front, seconds)
        assert "worked for more than 1 seconds on one batch" in await error_of(call)


@pytest.mark.usefixtures("looks_that_tests_make")
async def test_a_worker_that_may_have_joined_batches_has_the_time_of_all_of_them(running_front: Running) -> None:
    script = Script()
    pool = FakePool(script=script)
    aggregate = FunctionKind.FUNCTION_KIND_AGGREGATE
    pool.functions = (FunctionDescription(name="echo", version="1", kind=aggregate),)
    limits = {"client_silence_seconds": 0, "worker_silence_seconds": 0, "batch_timeout_seconds": 2_000}
    async with running_front(pool, **limits) as front:
        call = await opened(front, script)
        for number in (1, 2, 3):
            await call.write(batch(number))
            await script.got(FrameKind.BATCH)
            # It took the previous batch and works on this one.
            script.replies.put_nowait(ReplyMetadata(consumed=number - 1))
            await asyncio.wait_for(call.read(), 60)
            await written(front)
        clocks_looked_at(front, 3 * 4_000)
        [watched] = front.front.running._watched
        assert not watched.relay.end_state.exceeded_limit
        clocks_looked_at(front, 2)
        assert "the function echo worked for more than 2000 seconds on one batch" in await error_of(call)


@pytest.mark.usefixtures("looks_that_tests_make")
@pytest.mark.parametrize(
    ("limits", "is_ended"),
    [({}, True), ({"batch_timeout_seconds": 0.0}, False), ({"batch_timeout_seconds": 100_000.0}, False)],
)
async def test_no_batch_takes_longer_than_a_day_unless_the_operator_says_so(
    running_front: Running, limits: dict[str, float], is_ended: bool
) -> None:
    used = itertools.count()
    script = Script()
    pool = FakePool(script=script)
    pool.usage = lambda: WorkerUsage(0, f"it computes {next(used)}")
    async with running_front(pool, client_silence_seconds=0, worker_silence_seconds=0, **limits) as front:
        call = await opened(front, script)
        await call.write(batch(1))
        await script.got(FrameKind.BATCH)
        clocks_looked_at(front, 86_400)
        [watched] = front.front.running._watched
        assert not watched.relay.end_state.exceeded_limit
        clocks_looked_at(front, 1)
        assert watched.relay.end_state.exceeded_limit == is_ended
        if is_ended:
            assert "the function echo worked for more than 86400 seconds on one batch" in await error_of(call)
        call.cancel()
