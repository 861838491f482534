# SPDX-License-Identifier: Apache-2.0
"""Exchanges, drains and failures on the status page; tests/contract tests the page itself."""

import asyncio
import json
import re
import urllib.request
from collections.abc import Sequence
from typing import Any

import pytest
from fake_pool import FakePool
from flight_messages import all_replies, batch, command_request, echo_command, finish, reply_metadata
from front_harness import Running, RunningFront

from updraft.errors import UserError
from updraft.service.lifecycle import Event
from updraft.v1.control_pb2 import PoolState, PoolStatus, SandboxLayer
from updraft.v1.exchange_pb2 import Owner, RegisteredFunction, TaskIdentity
from updraft_server.front.status.activity import KEPT_FAILURES, Activity, ExchangePhase
from updraft_server.front.status.page import amount, duration, html_page, points, size
from updraft_server.front.status.report import KEPT_SAMPLES, SHOWN_EXCHANGES, ExchangeRow, Report, Sampler
from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.ipc.model_packets import ModelReplica, ModelUsage
from updraft_server.pool.bindings import REGISTERED, Binding
from updraft_server.pool.leases import Lease, NoIdleWorker, TaskKey, WorkerInfo


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """Sampler over a pool with the state that a test wants."""

    def __init__(self) -> None:
        self.activity = Activity()
        self.status = PoolStatus(state=PoolState.POOL_STATE_READY, server_version="1", python_version="3.11")
        self.clock = Clock()
        self.living: Sequence[WorkerInfo] = ()
        self.models: Sequence[ModelUsage] = ()
        self.sampler = Sampler(
            lambda: self.status,
            self.activity,
            {"": True},
            {"signal": 0},
            2,
            lambda: self.living,
            lambda: self.models,
            self.clock,
        )

    def after(self, seconds: float) -> Report:
        self.clock.now += seconds
        self.sampler.sample()
        return self.sampler.report

    def exchange_of(self, rows: int) -> None:
        exchange = self.activity.begin()
        exchange.transfer.rows = rows
        self.activity.end(exchange)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_rates_are_of_the_time_that_has_passed(watched: Watched) -> None:
    for _ in range(6):
        watched.exchange_of(rows=50)
    history = watched.after(3.0).history
    assert (history.exchanges_per_second, history.rows_per_second) == ((2.0,), (100.0,))
    assert watched.after(2.0).history.exchanges_per_second == (2.0, 0.0)


def test_rows_are_counted_from_the_start_of_the_front(watched: Watched) -> None:
    watched.exchange_of(rows=50)
    assert watched.after(2.0).rows == 50
    watched.exchange_of(rows=7)
    assert watched.after(2.0).rows == 57


def test_workers_are_named_by_their_ids_with_what_was_last_measured_of_them(watched: Watched) -> None:
    watched.living = (
        WorkerInfo("a1b2c3-1", 4711, "idle", 3 * 1024 * 1024, 4096),
        WorkerInfo("a1b2c3-2", 4712, "busy", None),
    )
    report = watched.after(2.0)
    assert json.loads(report.to_json())["workers"]["living"] == [
        {"worker": "a1b2c3-1", "pid": 4711, "state": "idle", "memory_bytes": 3 * 1024 * 1024, "scratch_bytes": 4096},
        {"worker": "a1b2c3-2", "pid": 4712, "state": "busy", "memory_bytes": None, "scratch_bytes": None},
    ]
    page = html_page(report).body.decode()
    assert re.search(r"a1b2c3-1.*idle.*3\.0 MiB.*a1b2c3-2.*busy.*not measured yet", page, re.DOTALL)


def test_batched_functions_are_shown_with_their_processes_and_what_these_have_done(watched: Watched) -> None:
    record = BatchRecord()
    for rows in (100, 300):
        record.batches.add(rows)
        record.waits.add(0.004)
    replica = ModelReplica("model-1", 0, 4711, "ready", 2 * 1024 * 1024, 3)
    watched.models = (
        ModelUsage("sentiment", "2", [replica], 3, 1, 2, record.to_plain()),
        ModelUsage("away", "1", [], 0, 0, 1, BatchRecord().to_plain()),
    )
    report = watched.after(2.0)
    sentiment, away = json.loads(report.to_json())["models"]
    assert sentiment["processes"] == [
        {
            "model": "model-1",
            "number": 0,
            "pid": 4711,
            "state": "ready",
            "memory_bytes": 2 * 1024 * 1024,
            "connections": 3,
        }
    ]
    counted = {name: sentiment[name] for name in ("loads", "evictions", "deaths", "batches", "rows", "wait_seconds")}
    assert counted == {"loads": 3, "evictions": 1, "deaths": 2, "batches": 2, "rows": 400, "wait_seconds": 0.005}
    assert away["processes"] == []
    page = html_page(report).body.decode()
    assert re.search(r"sentiment@2.*4711.*ready.*2\.0 MiB.*200.*at most 0\.005 s.*away@1.*not loaded", page, re.DOTALL)


def test_layers_of_the_sandbox_are_shown_with_what_they_lack(watched: Watched) -> None:
    assert "not known yet" in html_page(watched.after(2.0)).body.decode()
    watched.status.sandbox.extend([SandboxLayer(name="seccomp"), SandboxLayer(name="landlock", lack="Linux is <old>")])
    report = watched.after(2.0)
    assert json.loads(report.to_json())["sandbox"] == {"seccomp": "", "landlock": "Linux is <old>"}
    page = html_page(report).body.decode()
    assert 'seccomp, <span title="Linux is &lt;old&gt;">no landlock</span>' in page


def test_history_failures_and_rows_are_bounded(watched: Watched) -> None:
    for number in range(KEPT_SAMPLES + KEPT_FAILURES + SHOWN_EXCHANGES):
        exchange = watched.activity.begin()
        watched.activity.failed(exchange, UserError(f"number {number}"))
        watched.after(1.0)
    report = watched.after(1.0)
    assert len(report.history.busy) == KEPT_SAMPLES
    assert len(report.exchanges) == SHOWN_EXCHANGES < report.exchanges_open
    assert len(report.errors) == KEPT_FAILURES
    assert report.errors[0].message == f"number {number}"


def test_of_an_error_only_the_start_of_its_first_line_is_kept(watched: Watched) -> None:
    exchange = watched.activity.begin()
    watched.activity.failed(exchange, UserError("ValueError: " + "x" * 1000 + "\nrow 7: Ada Lovelace", traceback="x"))
    (error,) = watched.after(1.0).errors
    assert re.fullmatch(r"ValueError: x+\.\.\.", error.message)
    assert len(error.message) == 200


def test_what_has_passed_never_decreases_when_an_exchange_ends() -> None:
    activity = Activity()
    exchange = activity.begin()
    exchange.transfer.received_bytes = 10
    before = activity.transferred().received_bytes
    activity.end(exchange)
    activity.end(activity.begin())
    assert before == activity.transferred().received_bytes == 10


async def seen(front: RunningFront) -> Report:
    front.front.sampler.sample()
    return front.front.sampler.report


async def running_exchange(front: RunningFront, **command: object) -> Any:
    """Open an exchange and return it once its first batch has been answered."""
    call = front.exchange()
    await call.write(command_request(echo_command(**command)))
    await call.write(batch(1))
    # The admission, the schema, and the batch.
    for _ in range(3):
        await call.read()
    return call


async def finished(call: Any) -> None:
    await call.write(finish(1))
    await call.done_writing()
    await all_replies(call)


async def test_an_exchange_in_flight_is_shown_with_its_task_and_batches(running_front: Running) -> None:
    async with running_front(FakePool()) as front:
        call = await running_exchange(front)
        report = await seen(front)
        (row,) = report.exchanges
        assert row.identity["application"] == "app-1"
        assert (row.identity["partition"], row.phase, row.batches) == ("3", "running", 1)
        assert row.received_bytes > 0
        assert report.workers.busy == 1
        await finished(call)
        assert (await seen(front)).exchanges == []


class FullPool(FakePool):
    """Pool that notifies the test when an exchange finds no worker."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_in_vain = asyncio.Event()

    async def lease(self, task: TaskKey | None, binding: Binding = REGISTERED, *, leave_fresh: int = 0) -> Lease:
        try:
            return await super().lease(task, binding)
        except NoIdleWorker:
            self.asked_in_vain.set()
            raise


async def test_one_that_waits_says_so(running_front: Running) -> None:
    pool = FullPool()
    async with running_front(pool) as front:
        first = await running_exchange(front)
        second = front.exchange()
        task = TaskIdentity(owner=Owner(application_id="app-2"), task_attempt_id=9)
        await second.write(command_request(echo_command(task=task)))
        await asyncio.wait_for(pool.asked_in_vain.wait(), 60)
        report = await seen(front)
        assert [row.phase for row in report.exchanges] == [ExchangePhase.RUNNING.value, ExchangePhase.WAITING.value]
        assert report.queue.waiting == 1
        for call in (first, second):
            call.cancel()


async def test_a_name_without_end_is_not_kept_whole(running_front: Running) -> None:
    async with running_front(FakePool()) as front:
        call = front.exchange()
        endless = RegisteredFunction(name="x" * 100_000)
        await call.write(command_request(echo_command(registered=endless)))
        replies, _ = await all_replies(call)
        assert reply_metadata(replies[-1]).HasField("error")
        (error,) = (await seen(front)).errors
        assert error.outcome == "FunctionNotFoundError"
        assert max(len(error.message), *map(len, error.identity.values())) <= 200


async def test_a_drain_is_seen_while_it_lasts(running_front: Running) -> None:
    async with running_front(FakePool(), metrics_listen="127.0.0.1:0") as front:
        call = await running_exchange(front)
        front.front.lifecycle.handle(Event.DRAIN_REQUESTED)
        await seen(front)
        url = f"http://{front.settings.metrics_address}/status.json"
        body = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=60).read())
        assert json.loads(body)["state"] == "draining"
        assert "finishes 1 exchange and takes" in html_page(front.front.sampler.report).body.decode()
        await finished(call)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (duration(0.5), "0.5 s"),
        (duration(61), "1 min 1 s"),
        (duration(300), "5 min"),
        (duration(7260), "2 h 1 min"),
        (duration(200_000), "2 d 7 h"),
        (size(0), "0 B"),
        (size(1536), "1.5 KiB"),
        (size(5 * 2**40), "5.0 TiB"),
        (amount(3), "3"),
        (amount(2.25), "2.2"),
        (amount(12345.6), "12,346"),
    ],
)
def test_numbers_are_said_as_people_say_them(shown: str, text: str) -> None:
    assert shown == text


@pytest.mark.parametrize(
    ("values", "drawn"), [([], ""), ([0, 0], "297.0,46.0 300.0,46.0"), ([1, 2], "297.0,24.0 300.0,2.0")]
)
def test_a_line_ends_at_the_right_and_stands_on_zero(values: Sequence[float], drawn: str) -> None:
    assert points(values, 101) == drawn


def test_a_row_of_the_page_has_what_the_report_has(watched: Watched) -> None:
    watched.activity.begin().identity = {"function": "prices"}
    report = watched.after(1.0)
    assert report.exchanges == [ExchangeRow({"function": "prices"}, "requesting", report.exchanges[0].seconds, 0, 0, 0)]
    assert '<th scope="row">prices</th>' in html_page(report).body.decode()
