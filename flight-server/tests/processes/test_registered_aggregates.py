# SPDX-License-Identifier: Apache-2.0
"""Registered aggregates through real workers: groups, filters and stages."""

from collections.abc import Iterator
from typing import Any

import pytest
from pool_driver import (
    Zygotes,
    answers,
    exchange,
    leased,
    requests,
    running_pool,
    send_command,
)
from registered_modules import columns, named, zygotes_with

from updraft.v1 import exchange_pb2
from updraft_server.ipc.frame_stream import FrameReceiver, FrameSender
from updraft_server.ipc.frames import FrameKind
from updraft_server.pool.bindings import REGISTERED
from updraft_server.pool.leases import LeaseOutcome

FUNCTIONS = '''
import signal
from typing import NamedTuple

import pyarrow.compute as pc

from updraft import function
from updraft.functions import Arrow


class State(NamedTuple):
    total: float
    number: int


@function.aggregate
class Left:
    """The milliseconds that it has for the rows of a group."""

    def start(self) -> int:
        return 0

    def accumulate(self, state: int, value: Arrow[float]) -> int:
        return int(signal.getitimer(signal.ITIMER_REAL)[0] * 1000)

    def merge(self, left: int, right: int) -> int:
        return max(left, right)

    def finish(self, state: int) -> int:
        return state


@function.aggregate
class Mean:
    def start(self) -> State:
        return State(0.0, 0)

    def accumulate(self, state: State, value: Arrow[float]) -> State:
        return State(state.total + pc.sum(value).as_py(), state.number + len(value))

    def merge(self, left: State, right: State) -> State:
        return State(left.total + right.total, left.number + right.number)

    def finish(self, state: State) -> float | None:
        return state.total / state.number if state.number else None
'''


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygotes]:
    with zygotes_with(tmp_path_factory.mktemp("functions"), aggregates_of_a_team=FUNCTIONS) as zygotes:
        yield zygotes


async def test_an_aggregate_gives_one_row_for_each_group_after_the_last_batch(functions: Zygotes) -> None:
    batches = [columns(["a", "b", "a"], [1.0, 2.0, 3.0]), columns(["b", None], [4.0, 5.0])]
    async with running_pool(functions) as pool:
        command = named("Mean", key_columns=1)
        reply = await exchange(pool, batches, command, key_columns=1)
    assert reply.table.to_pydict() == {"_0": ["a", "b", None], "result": [2.0, 3.0, 5.0]}
    assert [sequence for sequence, _ in reply.batches] == [1]


async def test_batches_that_an_aggregate_joins_have_the_time_of_all_of_them(functions: Zygotes) -> None:
    batches = [columns(["a"], [1.0]), columns(["a"], [2.0]), columns(["a"], [3.0])]
    async with running_pool(functions) as pool:
        command = named("Left", key_columns=1)
        reply = await exchange(pool, batches, command, key_columns=1, batch_timeout_seconds=60)
    # Including the time of what follows the last batch.
    assert 180_000 < reply.table.column("result")[0].as_py() <= 240_000


async def test_an_aggregate_with_rows_that_it_holds_ends_with_its_client(functions: Zygotes) -> None:
    async with running_pool(functions) as pool:
        lease = await leased(pool, None, REGISTERED)
        batches = [columns(["a"], [1.0]), columns(["a"], [2.0])]
        await send_command(lease, batches[0].schema, named("Mean", key_columns=1), key_columns=1)
        sender, receiver = FrameSender(lease.socket), FrameReceiver(lease.socket, max_payload_bytes=2**31)
        for frame in requests(batches)[:2]:
            await sender.send(FrameKind.BATCH, *frame)
        for kind in (FrameKind.LOADING, FrameKind.LOADED):
            assert (await receiver.receive()).kind is kind
        # It has taken the second batch, and asks for more.
        while exchange_pb2.ReplyMetadata.FromString(bytes((await receiver.receive()).app_metadata)).consumed < 2:
            pass
        lease.release(LeaseOutcome.CANCELLED)
        await answers(pool)


async def test_an_aggregate_takes_the_rows_of_its_filter(functions: Zygotes) -> None:
    batches = [columns(["a", "b", "a"], [True, False, False], [1.0, 2.0, None])]
    async with running_pool(functions) as pool:
        command = named("Mean", key_columns=1, filtered=True)
        reply = await exchange(pool, batches, command, key_columns=1, filtered=True)
        wrong = await exchange(pool, [columns(["a"], [1.0])], command, key_columns=1, filtered=True)
    assert reply.table.to_pydict() == {"_0": ["a", "b"], "result": [1.0, None]}
    assert wrong.error.kind == exchange_pb2.ERROR_KIND_PROTOCOL


async def test_an_aggregate_in_two_stages_gives_what_one_gives(functions: Zygotes) -> None:
    def stage(stage: exchange_pb2.AggregateStage) -> dict[str, Any]:
        return {"key_columns": 1, "stage": stage}

    parts = [[columns(["a", "b"], [1.0, 2.0]), columns(["a"], [3.0])], [columns(["b"], [4.0])]]
    async with running_pool(functions) as pool:
        accumulated = stage(exchange_pb2.AGGREGATE_STAGE_ACCUMULATE)
        states = [await exchange(pool, part, named("Mean"), **accumulated) for part in parts]
        batches = [batch for state in states for _, batch in state.batches]
        assert batches[0].column(1).to_pylist() == [{"total": 4.0, "number": 2}, {"total": 2.0, "number": 1}]
        merge = stage(exchange_pb2.AGGREGATE_STAGE_MERGE)
        merged = await exchange(pool, batches, named("Mean"), **merge)
        assert merged.table.to_pydict() == {"_0": ["a", "b"], "result": [2.0, 3.0]}
        wrong = await exchange(pool, [columns(["a"], [1.0])], named("Mean"), **merge)
    assert wrong.error.kind == exchange_pb2.ERROR_KIND_PROTOCOL


async def test_an_aggregate_of_no_rows_is_there_without_keys_and_not_with_keys(functions: Zygotes) -> None:
    async with running_pool(functions) as pool:
        whole = await exchange(pool, [], named("Mean"), columns([1.0]).schema)
        keyed = await exchange(pool, [], named("Mean"), columns(["a"], [1.0]).schema, key_columns=1)
    assert whole.table.to_pydict() == {"result": [None]}
    assert keyed.table.to_pydict() == {"_0": [], "result": []}
