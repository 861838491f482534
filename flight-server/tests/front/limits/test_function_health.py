# SPDX-License-Identifier: Apache-2.0
"""A function that cannot be loaded or keeps killing workers is unhealthy and says why; other functions stay healthy."""

import asyncio
import signal
from contextlib import suppress
from typing import Any

import grpc.aio
import pyarrow.flight as flight
from fake_pool import FakePool, FakeWorker, echo
from flight_messages import all_replies, command_request, echo_command, finish
from front_calls import NOT_SERVING, SERVING, health, in_a_thread, until
from front_harness import Running, RunningFront

from updraft.errors import FunctionLoadError, WorkerError
from updraft.v1.control_pb2 import FunctionDescription, PoolStatus
from updraft_server.front.limits.deaths import FunctionHealth
from updraft_server.front.request.request import Request
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.function_list import DEATHS_IN_A_ROW
from updraft_server.pool.worker_events import WorkerDeath

FUNCTIONS = [
    FunctionDescription(name="good", version="1"),
    FunctionDescription(name="poisoned", version="1"),
    FunctionDescription(name="poisoned", version="2"),
    FunctionDescription(name="broken", version="1", fault="it was never loaded"),
]
POISONED = Request("poisoned", "2")
UNHEALTHY = "updraft_functions_unhealthy", {"function": "echo"}
DEATH = WorkerError("the worker died of SIGSEGV")


def functions() -> list[FunctionDescription]:
    return FUNCTIONS


def test_a_function_is_healthy_until_something_is_known_of_it() -> None:
    health = FunctionHealth(functions)
    assert health.faults() == {"good": "", "poisoned": "", "broken": "it was never loaded"}
    assert health.shown(FUNCTIONS[:3]) == FUNCTIONS[:3]
    assert health.unhealthy() == {"good": 0, "poisoned": 0, "broken": 1}


def test_one_that_could_not_be_loaded_is_unhealthy_until_it_could() -> None:
    changes: list[int] = []
    health = FunctionHealth(functions, on_change=lambda: changes.append(1))
    health.could_not_be_loaded(POISONED, FunctionLoadError("no weights"))
    health.could_not_be_loaded(POISONED, FunctionLoadError("no weights"))
    assert (health.faults()["poisoned"], len(changes)) == ("no weights", 1)
    health.succeeded(POISONED)
    assert (health.faults()["poisoned"], len(changes)) == ("", 2)


def test_a_few_deaths_are_bad_luck_and_a_row_of_them_is_not() -> None:
    health = FunctionHealth(functions)
    for _ in range(DEATHS_IN_A_ROW - 1):
        health.died(POISONED, DEATH)
    assert health.faults()["poisoned"] == ""
    health.succeeded(POISONED)
    for _ in range(DEATHS_IN_A_ROW):
        assert health.faults()["poisoned"] == ""
        health.died(POISONED, DEATH)
    assert health.faults()["poisoned"] == ("it has killed 3 workers in a row, the last one: the worker died of SIGSEGV")


def test_callers_hear_which_faults_are_over_only_when_the_functions_are_loaded_again() -> None:
    model = FunctionDescription(name="model", version="1", batched=True)
    health = FunctionHealth(functions, lambda: {("model", "1"): "its model process was killed by SIGSEGV"})
    health.could_not_be_loaded(POISONED, FunctionLoadError("no weights"))
    shown = health.shown([*FUNCTIONS, model])
    assert {each.name for each in shown if each.fault} == {"poisoned", "broken", "model"}
    assert [each.name for each in shown if each.fault_is_final] == ["broken"]


def test_of_batched_functions_the_zygote_says_what_is_wrong_and_when_it_is_over() -> None:
    faults = {("model", "1"): "its model process was killed by SIGSEGV"}
    model = FunctionDescription(name="model", version="1", batched=True)
    health = FunctionHealth(lambda: [*FUNCTIONS, model], lambda: faults)
    assert health.faults()["model"] == "its model process was killed by SIGSEGV"
    assert health.unhealthy() == {"good": 0, "poisoned": 0, "broken": 1, "model": 1}
    assert [shown.fault for shown in health.shown([model])] == ["its model process was killed by SIGSEGV"]
    # A worker may report a refused connection after the model process is back.
    faults.clear()
    health.could_not_be_loaded(Request("model", "1"), FunctionLoadError("its model process cannot be called"))
    assert health.faults()["model"] == ""


def test_the_version_that_callers_get_by_default_is_the_one_that_counts() -> None:
    health = FunctionHealth(functions)
    health.could_not_be_loaded(Request("poisoned", "1"), FunctionLoadError("no weights"))
    assert health.faults()["poisoned"] == ""
    assert [function.fault for function in health.shown(FUNCTIONS)] == ["", "no weights", "", "it was never loaded"]
    assert FUNCTIONS[1].fault == ""


async def call(front: RunningFront) -> Any:
    sent = front.exchange()
    await sent.write(command_request(echo_command()))
    with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
        # The call may have ended.
        await sent.write(finish(0))
        await sent.done_writing()
    return (await all_replies(sent))[1]


async def refuses(worker: FakeWorker) -> None:
    await worker.receive()
    await worker.send(FrameKind.FAILED, FunctionLoadError("no weights").to_message().SerializeToString())


async def test_health_and_status_follow_what_exchanges_show(running_front: Running) -> None:
    pool = FakePool(script=refuses)
    async with running_front(pool) as front:
        assert await health(front.channel, "updraft.function/echo") == SERVING
        await call(front)
        published = front.front.health.board.published
        await until(lambda: not published["updraft.function/echo"])
        assert await health(front.channel, "updraft.function/echo") == NOT_SERVING
        assert await health(front.channel) == SERVING
        assert (await status(front)).functions[0].fault == "no weights"
        assert front.front.metrics.registry.get_sample_value(*UNHEALTHY) == 1
        pool.script = echo
        await call(front)
        await until(lambda: published["updraft.function/echo"])
        assert (await status(front)).functions[0].fault == ""
        assert front.front.metrics.registry.get_sample_value(*UNHEALTHY) == 0


async def test_functions_that_were_loaded_again_are_healthy_until_they_are_called(running_front: Running) -> None:
    pool = FakePool(script=refuses)
    echo, gone = pool.functions[0], FunctionDescription(name="gone", version="1", fault="no weights")
    pool.functions = (echo, gone)
    async with running_front(pool) as front:
        published = front.front.health.board.published
        await call(front)
        await until(lambda: not published["updraft.function/echo"] and not published["updraft.function/gone"])
        # Only the code differs; the declaration of the function may be the same.
        pool.functions, pool.generation = (echo,), 1
        pool.changed()
        await until(lambda: published["updraft.function/echo"] and "updraft.function/gone" not in published)
        assert (await status(front)).functions[0].fault == ""
        await call(front)
        await until(lambda: not published["updraft.function/echo"])
        # A restarted zygote has the code that is already known.
        pool.functions = (echo,)
        pool.changed()
        assert (await status(front)).functions[0].fault == "no weights"


async def test_deaths_by_the_function_make_it_unhealthy(running_front: Running) -> None:
    async def dies(worker: FakeWorker) -> None:
        await worker.receive()
        pool.leases[-1].die(WorkerDeath(-signal.SIGSEGV))

    pool = FakePool(script=dies)
    async with running_front(pool) as front:
        for _ in range(DEATHS_IN_A_ROW):
            assert (await status(front)).functions[0].fault == ""
            await call(front)
        assert "it has killed 3 workers in a row" in (await status(front)).functions[0].fault
        pool.script = echo


async def status(front: RunningFront) -> PoolStatus:
    def asked() -> PoolStatus:
        with flight.connect(f"grpc://{front.address}") as client:
            (result,) = client.do_action(flight.Action("updraft.pool_status", b""))
            return PoolStatus.FromString(result.body.to_pybytes())

    return await in_a_thread(asked)
