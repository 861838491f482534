# SPDX-License-Identifier: Apache-2.0
"""Batched functions in real processes: forked by a zygote, called by workers."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from model_pool import (
    NUMBERS,
    call,
    calls,
    command,
    connections,
    record_of,
    running_pool,
    usage_of,
    values,
    zygotes_in,
)
from pool_driver import (
    Zygotes,
    exchange,
    leased,
    numbers,
    receive_reply,
    requests,
    send_command,
    send_requests,
)

from updraft.v1 import exchange_pb2
from updraft_server.pool.bindings import REGISTERED
from updraft_server.pool.leases import LeaseOutcome


@pytest.fixture(scope="module")
def zygotes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygotes]:
    with zygotes_in(tmp_path_factory.mktemp("zygote")) as started:
        yield started


async def test_results_are_those_of_the_function_in_the_order_of_the_rows(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        reply = await call(pool, "doubled", numbers(3), numbers(2, 10))
    assert values(reply) == [[0, 2, 4], [20, 22]]


async def test_the_front_is_told_while_the_process_is_waited_for(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        reply = await call(pool, "doubled", numbers(3))
    assert [(load.function, load.limit_seconds) for load in reply.loads] == [("doubled", 86_400.0)]


async def test_a_batch_without_rows_has_no_results_of_the_functions_type(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        reply = await call(pool, "doubled", numbers(0), numbers(1, 4))
    assert values(reply) == [[], [8]]
    assert reply.schema == pa.schema([pa.field("result", pa.int64(), nullable=False)])


async def test_arguments_are_checked_before_the_process_sees_them(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        reply = await exchange(pool, [pa.record_batch({"text": pa.array(["x"])})], command("doubled"))
    assert reply.error is not None
    assert reply.error.kind == exchange_pb2.ERROR_KIND_PROTOCOL


async def test_all_workers_share_one_process(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=3) as pool:
        replies = await calls(pool, "pid", [[numbers(5)]] * 3)
        workers = {worker.pid for worker in pool.workers}
        (process,) = (await usage_of(pool, "pid")).replicas
    assert {pid for reply in replies for value in values(reply) for pid in value} == {process.pid}
    assert process.pid not in workers


async def test_a_function_is_warmed_up_once_and_before_its_first_rows(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        reply = await call(pool, "warmed", numbers(2), numbers(1))
    assert values(reply) == [[1, 1], [1]]


async def test_exchanges_are_spread_over_the_replicas_of_a_function(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=4) as pool:
        while len([r for r in (await usage_of(pool, "replicated")).replicas if r.state == "ready"]) < 2:
            continue
        replies = await calls(pool, "replicated", [[numbers(1)]] * 4)
    pids = [pid for reply in replies for value in values(reply) for pid in value]
    assert sorted(Counter(pids).values()) == [2, 2]


async def test_rows_of_several_exchanges_are_one_batch(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=4) as pool:
        replies = await calls(pool, "batch_rows", [[numbers(25, 25 * n)] for n in range(4)])
    assert [values(reply) for reply in replies] == [[[100] * 25]] * 4


async def test_small_batches_of_sixteen_exchanges_reach_the_function_as_large_ones(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=16) as pool:
        replies = await calls(pool, "large_batches", [[numbers(64)] * 3] * 16)
        while sum(record_of(usage := await usage_of(pool, "large_batches")).batches.counts) < 3:
            continue
    assert [values(reply) for reply in replies] == [[[1024] * 64] * 3] * 16
    assert record_of(usage).batches.total == 3 * 16 * 64


async def test_a_batch_that_is_larger_than_the_functions_comes_in_parts_and_is_answered_whole(
    zygotes: Zygotes,
) -> None:
    async with running_pool(zygotes) as pool:
        reply = await call(pool, "batch_rows", numbers(250))
    assert values(reply) == [[100] * 200 + [50] * 50]


async def test_such_a_batch_is_answered_whole_by_the_successor_of_a_process_that_died(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        lease = await leased(pool, None, REGISTERED)
        await send_command(lease, NUMBERS, command("batch_rows"))
        while connections(await pool.measure_models(), "batch_rows") < 1:
            continue
        (process,) = (await usage_of(pool, "batch_rows")).replicas
        os.kill(process.pid, signal.SIGKILL)
        await send_requests(lease, requests([numbers(250).rename_columns(NUMBERS.names)]))
        reply = await receive_reply(lease)
        lease.release(LeaseOutcome.BROKEN)
    assert values(reply) == [[100] * 200 + [50] * 50]


async def test_an_error_returns_to_the_exchange_whose_rows_have_caused_it_alone(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=3) as pool:
        good, bad, other = await calls(pool, "picky", [[numbers(10)], [numbers(1), numbers(10, 10)], [numbers(5, 20)]])
    assert values(good) == [list(range(10))]
    assert values(other) == [list(range(20, 25))]
    assert bad.error is not None
    assert (bad.error.kind, bad.error.exception_class) == (exchange_pb2.ERROR_KIND_USER, "ValueError")
    assert bad.error.sequence == 2


async def test_rows_that_fail_are_null_where_the_author_wants_that_and_nobody_elses_are(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=2) as pool:
        some, bad = await calls(pool, "lenient", [[numbers(3)], [numbers(3, 12)]])
    assert values(some) == [[0, 1, 2]]
    assert values(bad) == [[12, None, 14]]


async def test_results_that_are_not_what_the_function_has_declared_are_an_error_of_it(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=2) as pool:
        replies = await calls(pool, "too_short", [[numbers(3)], [numbers(4)]])
    for rows, reply in zip((3, 4), replies, strict=True):
        assert reply.error is not None
        assert reply.error.kind == exchange_pb2.ERROR_KIND_USER
        assert f"function 'too_short' returned {rows - 1} values for {rows} rows" in reply.error.message


async def test_exchanges_wait_for_a_process_that_works_and_those_of_other_functions_do_not(tmp_path: Path) -> None:
    async def call_often() -> None:
        # Each call makes a connection: more than the socket of a process that reads nothing can hold.
        for _ in range(400):
            await exchange(pool, [], command("patient"), NUMBERS, binding=REGISTERED)

    with zygotes_in(tmp_path) as zygotes:
        async with running_pool(zygotes, workers=3) as pool:
            working = asyncio.create_task(call(pool, "patient", numbers(3)))
            while not (tmp_path / "works").exists():
                await pool.measure_models()
            often = asyncio.create_task(call_often())
            while (before := connections(await pool.measure_models(), "patient")) < 200:
                continue
            await asyncio.wait([often], timeout=2)
            assert connections(await pool.measure_models(), "patient") > before
            assert values(await call(pool, "doubled", numbers(2))) == [[0, 2]]
            assert not often.done()
            (tmp_path / "go-on").touch()
            await often
            assert values(await working) == [[0, 1, 2]]


async def test_a_function_may_have_a_timer_of_its_own(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        while not values(await call(pool, "alarming", numbers(1)))[0][0]:
            continue
