# SPDX-License-Identifier: Apache-2.0
"""Plain echo exchanges while processes of the pool are killed: each gives its rows or an error, never other rows."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pyarrow as pa
import pytest

from tests.faults.conftest import WORKERS
from tests.faults.victims import VICTIMS, assert_whole_in_time, has_ended, kill, seconds_until_whole
from tests.support.flight import Reply, echo_command, exchange, numbered, opening, pool_status, whole_request
from tests.support.flight import ipc_parts as ipc
from tests.support.pool import LocalPool
from tests.support.waiting import until

_CALLERS = 2
_ROUNDS = 3
_RETRY_SECONDS = 0.05
# What a killed process may look like to a caller; anything else is a defect.
_ALLOWED = {grpc.StatusCode.ABORTED, grpc.StatusCode.UNAVAILABLE}


@dataclass
class Traffic:
    """What the callers saw."""

    done: threading.Event = field(default_factory=threading.Event)
    right: int = 0
    failed: list[tuple[grpc.StatusCode, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def wait_for_progress(self) -> None:
        """Until a few more exchanges have succeeded."""
        seen = self.right
        until("the callers make progress", lambda: self.right > seen + 2, timeout_seconds=30)

    def call_until_done(self, address: str, seed: int) -> None:
        """Echo random batches and compare."""
        chance = random.Random(seed)
        while not self.done.is_set():
            rows = [[chance.random() for _ in range(chance.randrange(2000))] for _ in range(chance.randrange(1, 8))]
            batches = [pa.RecordBatch.from_pydict({"_0": pa.array(values, pa.float64())}) for values in rows]
            reply = exchange(address, whole_request(echo_command(), batches[0].schema, batches))
            if reply.code != grpc.StatusCode.OK:
                self.failed.append((reply.code, reply.details))
                self.done.wait(_RETRY_SECONDS)
                continue
            if reply.batches() != batches:
                self.wrong.append(f"{[b.num_rows for b in reply.batches()]} for {[b.num_rows for b in batches]}")
            self.right += 1


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_killed_process_gives_no_wrong_row_and_is_replaced(
    pool: LocalPool, victim: str, capsys: pytest.CaptureFixture[str]
) -> None:
    traffic = Traffic()
    callers = [
        threading.Thread(target=traffic.call_until_done, args=(pool.tcp_address, seed)) for seed in range(_CALLERS)
    ]
    for caller in callers:
        caller.start()
    seconds = []
    try:
        for _ in range(_ROUNDS):
            traffic.wait_for_progress()
            killed = kill(pool, victim)
            # The callers keep workers busy: whole means one of each process, not that all are idle.
            seconds.append(seconds_until_whole(pool, killed, WORKERS))
        traffic.wait_for_progress()
    finally:
        traffic.done.set()
        for caller in callers:
            caller.join(timeout=60)
    assert not traffic.wrong
    assert {code for code, _ in traffic.failed} <= _ALLOWED, traffic.failed
    with capsys.disabled():
        figures = ", ".join(f"{value:.2f}" for value in seconds)
        print(f"\n  {victim} killed {_ROUNDS} times: {traffic.right} right, {len(traffic.failed)} failed; s: {figures}")
    assert_whole_in_time(seconds)


@pytest.mark.parametrize("victim", VICTIMS)
def test_an_idle_pool_is_whole_again_within_a_second_of_a_kill(
    pool: LocalPool, victim: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = [seconds_until_whole(pool, kill(pool, victim), WORKERS) for _ in range(_ROUNDS)]
    with capsys.disabled():
        print(f"\n  {victim} killed: whole again after {', '.join(f'{value:.2f}' for value in seconds)} s")
    assert_whole_in_time(seconds)
    batch = pa.RecordBatch.from_pydict({"_0": [1]})
    assert exchange(pool.tcp_address, whole_request(echo_command(), batch.schema, [batch])).batches() == [batch]


class OpenExchange:
    """An exchange that has sent one batch, got its answer, and waits for leave to go on."""

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
        yield opening(echo_command(), schema[0])
        yield numbered(header, body, 1)
        self._answered.set()
        self._go_on.wait(timeout=30)
        yield from whole_request(echo_command(), self._batch.schema, [self._batch])[2:]

    def _run(self, address: str) -> None:
        self._reply = exchange(address, self._messages())

    def wait_until_it_holds_a_worker(self, pool: LocalPool) -> None:
        until("the exchange runs", lambda: pool_status(pool.tcp_address).workers_busy == 1, timeout_seconds=10)

    def finish(self) -> Reply:
        self._go_on.set()
        self._thread.join(timeout=30)
        assert self._reply is not None, "the exchange hangs"
        return self._reply


def test_a_killed_worker_fails_only_its_own_exchange(pool: LocalPool) -> None:
    both = [OpenExchange(pool.tcp_address) for _ in range(2)]
    until("both hold a worker", lambda: pool_status(pool.tcp_address).workers_busy == len(both), timeout_seconds=10)
    before = pool.workers()[0]
    before.kill()
    replies = sorted((one.finish() for one in both), key=lambda reply: reply.code.name)
    assert [reply.code for reply in replies] == [grpc.StatusCode.ABORTED, grpc.StatusCode.OK]
    assert "SIGKILL" in replies[0].error.message
    until("the workers are replaced", lambda: pool_status(pool.tcp_address).workers_idle == WORKERS, timeout_seconds=5)
    assert before.pid not in {worker.pid for worker in pool.workers()}


def test_a_killed_zygote_fails_no_running_exchange(pool: LocalPool) -> None:
    open_exchange = OpenExchange(pool.tcp_address)
    open_exchange.wait_until_it_holds_a_worker(pool)
    seconds_until_whole(pool, kill(pool, "zygote"), WORKERS)
    assert open_exchange.finish().code == grpc.StatusCode.OK


def test_a_draining_pool_finishes_what_runs_and_takes_nothing_new(pool: LocalPool) -> None:
    open_exchange = OpenExchange(pool.tcp_address)
    open_exchange.wait_until_it_holds_a_worker(pool)
    pool.request_drain()
    batch = pa.RecordBatch.from_pydict({"_0": [1]})

    def refused() -> bool:
        reply = exchange(pool.tcp_address, whole_request(echo_command(), batch.schema, [batch]))
        return bool(reply.code == grpc.StatusCode.UNAVAILABLE)

    until("new exchanges are refused", refused, timeout_seconds=10)
    assert open_exchange.finish().code == grpc.StatusCode.OK
    assert pool.wait(timeout_seconds=10) == 0


def test_a_drained_pool_leaves_no_process_behind(pool: LocalPool) -> None:
    family = pool.members()
    pool.request_drain()
    assert pool.wait(timeout_seconds=10) == 0
    until("all have ended", lambda: all(map(has_ended, family)), timeout_seconds=5)
