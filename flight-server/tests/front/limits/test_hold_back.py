# SPDX-License-Identifier: Apache-2.0
"""Functions and owners that keep killing workers are refused for a time; others are not affected."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fake_pool import FakePool, FakeWorker, echo
from flight_messages import all_replies, command_request, echo_command
from front_harness import Running

from updraft.errors import DeadlineError, PoolFullError
from updraft.v1.exchange_pb2 import ExchangeCommand, TaskIdentity
from updraft_server.front.limits.deaths import HoldBack
from updraft_server.front.request.request import SESSION_LABEL, Request
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.pool.leases import LeaseOutcome, Owner
from updraft_server.pool.worker_events import WorkerDeath

OWNER = Owner("tenant", "app", "")


class Clock:
    def __init__(self) -> None:
        self.now_seconds = 1000.0

    def __call__(self) -> float:
        return self.now_seconds


def session(payload: bytes) -> Request:
    command = ExchangeCommand()
    command.session.SetInParent()
    return Request(SESSION_LABEL, "", command, payload=payload)


def held(back: HoldBack, request: Request, owner: Owner = OWNER) -> str:
    try:
        back.check(owner, request)
    except PoolFullError as error:
        return error.message if error.retry_after_milliseconds > 0 else "it has no retry hint"
    return ""


def test_a_function_that_kills_again_and_again_is_held_back_and_named() -> None:
    back, request = HoldBack(3, Clock()), Request("echo", "1")
    for _ in range(2):
        back.died(OWNER, request)
        assert not held(back, request)
    back.died(OWNER, request)
    assert "the function 'echo' has killed 3 workers in a row and is held back for 10 seconds" in held(back, request)


def test_others_go_on() -> None:
    back = HoldBack(1, Clock())
    back.died(OWNER, session(b"bad"))
    assert "of application 'app'" in held(back, session(b"bad"))
    assert not held(back, session(b"good"))
    assert not held(back, session(b"bad"), Owner("tenant", "another app", ""))
    assert not held(back, Request("echo", "1"))


def test_another_version_goes_on_and_forgives_nothing() -> None:
    back, bad, good = HoldBack(2, Clock()), Request("echo", "1"), Request("echo", "2")
    back.died(OWNER, bad)
    back.succeeded(OWNER, good)
    back.died(OWNER, bad)
    assert held(back, bad)
    assert not held(back, good)


def test_an_owner_who_changes_the_function_each_time_is_held_back_as_well() -> None:
    back = HoldBack(3, Clock())
    for number in range(48):
        assert not held(back, session(b"unseen"))
        back.died(OWNER, session(b"%d" % number))
    assert held(back, session(b"unseen")).startswith("application 'app' has killed 48 workers")
    assert not held(back, session(b"unseen"), Owner("tenant", "another app", ""))
    assert not held(back, session(b"unseen"), Owner("tenant", "app", "another session"))


def test_one_more_death_after_that_time_holds_it_back_for_longer() -> None:
    clock = Clock()
    back, request = HoldBack(3, clock), Request("echo", "1")
    for _ in range(3):
        back.died(OWNER, request)
    clock.now_seconds += 10
    assert not held(back, request)
    back.died(OWNER, request)
    assert "for 20 seconds" in held(back, request)


def test_registered_functions_that_were_loaded_again_have_a_clean_record() -> None:
    back, request = HoldBack(2, Clock()), Request("echo", "1")
    for died in (request, request, session(b"bad"), session(b"bad")):
        back.died(OWNER, died)
    back.loaded_again()
    assert not held(back, request)
    assert held(back, session(b"bad"))
    # Earlier deaths and the earlier hold-back time no longer count.
    back.died(OWNER, request)
    assert not held(back, request)
    back.died(OWNER, request)
    assert "for 10 seconds" in held(back, request)


def test_what_is_held_back_is_counted_until_its_time_is_over() -> None:
    clock = Clock()
    back = HoldBack(2, clock)
    for payload in (b"bad", b"bad", b"worse", b"worse", b"unlucky"):
        back.died(OWNER, session(payload))
    assert back.held_now() == 2
    clock.now_seconds += 10
    assert back.held_now() == 0


def test_an_owner_who_is_held_back_as_a_whole_is_counted() -> None:
    back = HoldBack(2, Clock())
    for number in range(32):
        back.died(OWNER, session(b"%d" % number))
    assert back.held_now() == 1


def test_a_function_whose_workers_others_kill_goes_on_as_long_as_it_succeeds_now_and_then() -> None:
    back, request = HoldBack(3, Clock()), session(b"good")
    for _ in range(100):
        back.died(OWNER, request)
        back.died(OWNER, request)
        assert not held(back, request)
        back.succeeded(OWNER, request)


def test_a_success_does_not_forgive_what_other_functions_did() -> None:
    back = HoldBack(3, Clock())
    for _ in range(3):
        back.died(OWNER, session(b"bad"))
    back.succeeded(OWNER, session(b"good"))
    assert held(back, session(b"bad"))


def test_exchanges_with_different_payloads_can_be_of_one_function() -> None:
    back, requests = HoldBack(3, Clock()), [session(b"task %d" % number) for number in range(4)]
    for request in requests:
        request.command.session.function_sha256 = b"f" * 32
    for request in requests[:3]:
        back.died(OWNER, request)
    assert held(back, requests[3])
    assert not held(back, session(b"task 0"))
    assert not held(back, requests[3], OWNER._replace(application_id="another"))


def test_old_deaths_are_forgotten() -> None:
    clock = Clock()
    back, request = HoldBack(2, clock), Request("echo", "1")
    back.died(OWNER, request)
    clock.now_seconds += 301
    back.died(OWNER, request)
    assert not held(back, request)


MODEL = Request("model", "1", is_batched=True)


def test_a_tenant_whose_rows_end_three_model_processes_is_held_back_whichever_application_it_names() -> None:
    back = HoldBack(20, Clock())
    for application in ("first", "second", "third"):
        assert not held(back, MODEL)
        back.ended_a_model(Owner("tenant", application, ""), MODEL)
        # A success with the tenant's other rows proves nothing about these.
        back.succeeded(Owner("tenant", application, ""), MODEL)
    reason = held(back, MODEL, Owner("tenant", "fourth", ""))
    assert reason.startswith("tenant 'tenant', with its rows, has killed 3 model processes of the function 'model' in")
    assert "is held back for 10 seconds: leave out the rows" in reason


def test_the_function_whose_processes_a_tenant_has_ended_serves_all_others() -> None:
    back = HoldBack(20, Clock())
    for _ in range(10):
        back.ended_a_model(OWNER, MODEL)
    assert not held(back, MODEL, Owner("another tenant", "app", ""))
    assert not held(back, Request("another model", "1", is_batched=True))
    assert not held(back, Request("model", "2", is_batched=True))
    assert not held(back, Request("echo", "1"))


def test_a_client_without_application_and_tenant_is_one_of_those_who_have_neither() -> None:
    back, nobody = HoldBack(20, Clock()), Owner("", "", "")
    for _ in range(3):
        back.ended_a_model(nobody, MODEL)
    assert held(back, MODEL, nobody)
    assert not held(back, MODEL)


def test_few_deaths_that_are_allowed_hold_for_rows_too() -> None:
    back = HoldBack(1, Clock())
    back.ended_a_model(OWNER, MODEL)
    assert held(back, MODEL)


@pytest.mark.parametrize(("status", "is_held"), [(-signal.SIGSEGV, True), (3, True), (None, False)])
async def test_a_front_counts_deaths_by_what_a_function_did(
    running_front: Running, status: int | None, is_held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft_server.front.process.ALLOWED_DEATHS", 2)

    async def dies(worker: FakeWorker) -> None:
        await worker.receive()
        pool.leases[-1].die(WorkerDeath(status))

    async def one() -> Any:
        call = front.exchange()
        await call.write(command_request(echo_command()))
        return (await all_replies(call))[1]

    pool = FakePool(script=dies)
    async with running_front(pool) as front:
        await one()
        await one()
        last = await one()
        assert ("held back" in last.details()) == is_held
        assert len(pool.leases) == (2 if is_held else 3)
        value = front.front.metrics.registry.get_sample_value
        assert value("updraft_functions_held_back") == is_held
        assert value("updraft_exchanges_held_back_total") == is_held
        pool.script = echo


@pytest.mark.parametrize(("limits", "is_held"), [({"worker_memory_bytes": 1000}, True), ({}, False)])
async def test_a_front_counts_those_that_it_ended_for_what_they_took(
    running_front: Running, limits: dict[str, int], is_held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft_server.front.process.ALLOWED_DEATHS", 2)

    async def waits(worker: FakeWorker) -> None:
        await worker.receive()
        began.set()
        await asyncio.Event().wait()

    async def one(end: Callable[[], Awaitable[None]]) -> Any:
        began.clear()
        call = front.exchange()
        await call.write(command_request(echo_command()))
        await began.wait()
        await end()
        return (await all_replies(call))[1]

    async def drained() -> None:
        front.front.running.end_all(DeadlineError("no time is left"))

    began = asyncio.Event()
    pool = FakePool(script=waits)
    pool.usage = lambda: WorkerUsage(0, "", own_bytes=1001)
    async with running_front(pool, **limits) as front:
        for _ in range(2):
            error = await one(front.front.running.look_at_limits if is_held else drained)
            assert ("the limit is 1000" in error.details()) == is_held
        pool.script = echo
        call = front.exchange()
        await call.write(command_request(echo_command()))
        await call.done_writing()
        _, error = await all_replies(call)
        assert ("held back" in (error.details() if error else "")) == is_held


async def test_what_waited_meanwhile_gets_no_worker_to_kill(
    running_front: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft_server.front.process.ALLOWED_DEATHS", 1)

    async def dies(worker: FakeWorker) -> None:
        await worker.receive()
        began.set()
        await go_on.wait()
        pool.leases[-1].die(WorkerDeath(3))

    began, go_on = asyncio.Event(), asyncio.Event()
    pool = FakePool(script=dies)
    async with running_front(pool) as front:
        first, second = front.exchange(), front.exchange()
        await first.write(command_request(echo_command()))
        await began.wait()
        other_task = TaskIdentity(stage_id=2, task_attempt_id=5)
        other_task.owner.application_id = "app-1"
        await second.write(command_request(echo_command(task=other_task)))
        for _ in range(60_000):
            if front.front.admission.waiting:
                break
            await asyncio.sleep(0.001)
        go_on.set()
        ends = [str((await all_replies(call))[1]) for call in (first, second)]
        assert "exited with code 3" in ends[0]
        assert "held back" in ends[1]
        assert [lease.outcome for lease in pool.leases] == [LeaseOutcome.BROKEN, LeaseOutcome.CLEAN]
        assert front.front.metrics.registry.get_sample_value("updraft_exchanges_held_back_total") == 1
