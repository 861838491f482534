# SPDX-License-Identifier: Apache-2.0
"""Worker that constructs its function first: loading has a time limit of its own, which blames the function."""

import asyncio
from collections.abc import Sequence

import pytest
from fake_pool import FakePool, FakeWorker, Script, echo
from flight_messages import all_replies, batch, command_request, echo_command, finish
from front_harness import Running
from relay_exchanges import exchange, silent

from updraft.errors import FunctionLoadError, InternalError
from updraft_server.front.relay.relay import Relay
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.load import Load
from updraft_server.pool.leases import LeaseOutcome

LATE = "function 'f' cannot be loaded: it did not load within 0.05 seconds .*, and its worker was ended"


def loads(limit_seconds: float, then: Script) -> Script:
    async def script(worker: FakeWorker) -> None:
        await worker.send(FrameKind.LOADING, Load("m", "f", "1", limit_seconds).encode())
        await then(worker)

    return script


async def loaded(worker: FakeWorker) -> None:
    await worker.send(FrameKind.LOADED)
    await echo(worker)


async def nothing_is_counted(relay: Relay) -> None:
    """Wait until the function is being loaded: neither side is silent then, and no batch is worked on."""
    for _ in range(60_000):
        if relay.is_loading:
            break
        await asyncio.sleep(0.001)
    assert (relay.turn, relay.is_working) == (None, False)


async def test_a_function_that_does_not_load_in_time_is_refused_and_its_worker_ended() -> None:
    running = await exchange([batch(1)], loads(0.05, silent), ends=False)
    error = await running.error()
    assert isinstance(error, FunctionLoadError)
    with pytest.raises(FunctionLoadError, match=LATE):
        raise error
    assert running.relay.end_state.exceeded_limit


@pytest.mark.parametrize("limit_seconds", [0.0, 60.0, float("inf")])
async def test_a_function_that_loads_in_time_is_served(limit_seconds: float) -> None:
    running = await exchange([batch(1), finish(1, rows=3)], loads(limit_seconds, loaded))
    assert await running.run() is LeaseOutcome.CLEAN


async def test_a_limit_does_not_outlast_its_load() -> None:
    async def is_slow(worker: FakeWorker) -> None:
        await worker.send(FrameKind.LOADED)
        await asyncio.sleep(0.6)
        await echo(worker)

    running = await exchange([batch(1), finish(1, rows=3)], loads(0.5, is_slow))
    assert await running.run() is LeaseOutcome.CLEAN


async def test_while_a_function_loads_nobody_is_silent_and_no_batch_is_worked_on() -> None:
    go_on = asyncio.Event()

    async def waits(worker: FakeWorker) -> None:
        await go_on.wait()
        await loaded(worker)

    running = await exchange([batch(1), finish(1, rows=3)], loads(60.0, waits))
    relaying = asyncio.create_task(running.run())
    await nothing_is_counted(running.relay)
    go_on.set()
    assert await relaying is LeaseOutcome.CLEAN
    assert not running.relay.is_loading


async def test_a_model_process_may_be_loaded_in_the_middle_of_an_exchange() -> None:
    go_on, is_loading = asyncio.Event(), Load("m", "f").encode()

    async def waits_twice(worker: FakeWorker) -> None:
        await worker.send(FrameKind.LOADING, is_loading)
        await worker.send(FrameKind.LOADED)
        await worker.send(FrameKind.MESSAGE, b"", b"schema")
        await worker.send(FrameKind.LOADING, is_loading)
        await go_on.wait()
        await loaded(worker)

    running = await exchange([batch(1), finish(1, rows=3)], waits_twice, batched=True)
    relaying = asyncio.create_task(running.run())
    await running.call.has_received(2)
    await nothing_is_counted(running.relay)
    go_on.set()
    assert await relaying is LeaseOutcome.CLEAN


@pytest.mark.parametrize(
    "frames",
    [[b""], [b"{}"], [b"[" * 9_000], [Load("m", "f").encode()] * 2],
    ids=["nothing", "no load", "nested", "twice"],
)
async def test_a_worker_that_loads_something_else_is_given_up(frames: Sequence[bytes]) -> None:
    async def script(worker: FakeWorker) -> None:
        for frame in frames:
            await worker.send(FrameKind.LOADING, frame)
        await silent(worker)

    assert isinstance(await (await exchange([], script, ends=False)).error(), InternalError)


async def test_a_function_of_a_session_gains_no_time_by_saying_that_it_loads() -> None:
    running = await exchange([batch(1)], loads(0.0, loaded), session=True)
    assert isinstance(await running.error(), InternalError)


async def test_a_function_gains_no_time_by_saying_that_it_loads_again() -> None:
    async def script(worker: FakeWorker) -> None:
        await worker.send(FrameKind.LOADED)
        await loads(0.0, silent)(worker)

    running = await exchange([batch(1)], loads(60.0, script), ends=False)
    assert isinstance(await running.error(), InternalError)


async def test_a_function_gains_no_time_by_saying_that_it_loads_once_it_works() -> None:
    async def script(worker: FakeWorker) -> None:
        await worker.send(FrameKind.MESSAGE, b"", b"schema")
        await loads(0.0, loaded)(worker)

    assert isinstance(await (await exchange([batch(1)], script)).error(), InternalError)


async def test_a_function_that_does_not_load_in_time_is_unhealthy_at_once(running_front: Running) -> None:
    pool = FakePool(script=loads(0.05, silent))
    async with running_front(pool) as front:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        _, error = await all_replies(call)
        assert error is not None
        assert "did not load within 0.05 seconds" in str(error.details())
        fault = front.front.functions.faults()["echo"]
        assert fault.startswith("function 'f' cannot be loaded: it did not load within 0.05 seconds")
        pool.script = loads(60.0, loaded)
        call = front.exchange()
        for message in (command_request(echo_command()), finish(0)):
            await call.write(message)
        await call.done_writing()
        assert (await all_replies(call))[1] is None
        assert front.front.functions.faults()["echo"] == ""
