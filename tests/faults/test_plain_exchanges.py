# SPDX-License-Identifier: Apache-2.0
"""Plain echo exchanges while processes of the pool are killed: each exchange returns its own rows or an error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow as pa
import pytest

from tests.faults.conftest import WORKERS
from tests.faults.traffic import Traffic
from tests.faults.victims import VICTIMS, has_ended, kill, wait_until_whole
from tests.support.flight import Reply, echo_command, exchange, first_message, numbered, pool_status, whole_request
from tests.support.flight import ipc_parts as ipc
from tests.support.pool import LocalPool
from tests.support.waiting import HANG_SECONDS, until

_CALLERS = 2
_ROUNDS = 3
# Statuses that a caller may receive because of a killed process; any other status is a defect.
_ALLOWED = {grpc.StatusCode.ABORTED, grpc.StatusCode.UNAVAILABLE}


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_killed_process_gives_no_wrong_row_and_is_replaced(pool: LocalPool, victim: str) -> None:
    with Traffic(pool.tcp_address, callers=_CALLERS) as traffic:
        for _ in range(_ROUNDS):
            traffic.wait_for_progress()
            # The callers keep workers busy, so treat the pool as whole when each process exists, even if no worker is
            # idle.
            wait_until_whole(pool, kill(pool, victim), WORKERS)
        traffic.wait_for_progress()
    assert not traffic.wrong
    assert {code for code, _ in traffic.failed} <= _ALLOWED, traffic.failed


@pytest.mark.parametrize("victim", VICTIMS)
def test_an_idle_pool_is_whole_again_after_each_kill(pool: LocalPool, victim: str) -> None:
    for _ in range(_ROUNDS):
        wait_until_whole(pool, kill(pool, victim), WORKERS)
    batch = pa.RecordBatch.from_pydict({"_0": [1]})
    replies = [
        exchange(pool.tcp_address, whole_request(echo_command(), batch.schema, [batch])) for _ in range(_ROUNDS + 1)
    ]
    assert [reply.batches() for reply in replies] == [[batch]] * len(replies)


class OpenExchange:
    """Exchange that sends one batch, and then waits until the test lets it continue."""

    def __init__(self, address: str):
        self._go_on = threading.Event()
        self._answered = threading.Event()
        self._batch = pa.RecordBatch.from_pydict({"_0": [1, 2, 3]})
        self._reply: Reply | None = None
        self._thread = threading.Thread(target=self._run, args=(address,), daemon=True)
        self._thread.start()

    def _messages(self) -> Iterator[Any]:
        schema, *_ = ipc(self._batch.schema, [])
        (_, (header, body)) = ipc(self._batch.schema, [self._batch])
        yield first_message(echo_command(), schema[0])
        yield numbered(header, body, 1)
        self._answered.set()
        self._go_on.wait(HANG_SECONDS)
        yield from whole_request(echo_command(), self._batch.schema, [self._batch])[2:]

    def _run(self, address: str) -> None:
        self._reply = exchange(address, self._messages())

    def wait_until_it_holds_a_worker(self, pool: LocalPool) -> None:
        until("the exchange runs", lambda: pool_status(pool.tcp_address).workers_busy == 1)

    def finish(self) -> Reply:
        self._go_on.set()
        self._thread.join(HANG_SECONDS)
        assert self._reply is not None, "the exchange hangs"
        return self._reply


def test_a_killed_worker_fails_only_its_own_exchange(pool: LocalPool) -> None:
    both = [OpenExchange(pool.tcp_address) for _ in range(2)]
    until("both hold a worker", lambda: pool_status(pool.tcp_address).workers_busy == len(both))
    before = pool.workers()[0]
    before.kill()
    replies = sorted((one.finish() for one in both), key=lambda reply: reply.code.name)
    assert [reply.code for reply in replies] == [grpc.StatusCode.ABORTED, grpc.StatusCode.OK]
    assert "SIGKILL" in replies[0].error.message
    until("the workers are replaced", lambda: pool_status(pool.tcp_address).workers_idle == WORKERS)
    assert before.pid not in {worker.pid for worker in pool.workers()}


def test_a_killed_zygote_fails_no_running_exchange(pool: LocalPool) -> None:
    open_exchange = OpenExchange(pool.tcp_address)
    open_exchange.wait_until_it_holds_a_worker(pool)
    wait_until_whole(pool, kill(pool, "zygote"), WORKERS)
    assert open_exchange.finish().code == grpc.StatusCode.OK


def test_a_draining_pool_finishes_what_runs_and_takes_nothing_new(pool: LocalPool) -> None:
    open_exchange = OpenExchange(pool.tcp_address)
    open_exchange.wait_until_it_holds_a_worker(pool)
    pool.request_drain()
    batch = pa.RecordBatch.from_pydict({"_0": [1]})

    def refused() -> bool:
        reply = exchange(pool.tcp_address, whole_request(echo_command(), batch.schema, [batch]))
        return bool(reply.code == grpc.StatusCode.UNAVAILABLE)

    until("new exchanges are refused", refused)
    assert open_exchange.finish().code == grpc.StatusCode.OK
    assert pool.wait(timeout_seconds=HANG_SECONDS) == 0


def test_a_drained_pool_leaves_no_process_behind(pool: LocalPool) -> None:
    family = pool.members()
    pool.request_drain()
    assert pool.wait(timeout_seconds=HANG_SECONDS) == 0
    until("all have ended", lambda: all(map(has_ended, family)))
