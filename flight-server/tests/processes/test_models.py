# SPDX-License-Identifier: Apache-2.0
"""Batched functions in real processes: forked by a zygote, called by workers."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import model_functions
import pyarrow as pa
import pytest
from model_functions import NUMBERS
from pool_driver import (
    Reply,
    Zygotes,
    leased,
    numbers,
    receive_reply,
    requests,
    running_pool,
    send_command,
    send_requests,
)

from updraft.v1 import exchange_pb2
from updraft_server.ipc.model_packets import ModelUsage
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.pool.bindings import REGISTERED
from updraft_server.pool.leases import LeaseOutcome
from updraft_server.pool.pool import Pool


@pytest.fixture(scope="module")
def zygotes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygotes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(model_functions.__file__).parent))
        directory = tmp_path_factory.mktemp("zygote")
        started = Zygotes(directory, WorkerSettings(allow_session_functions=True), ["model_functions"])
        yield started
        started.stop()


async def call(pool: Pool, name: str, *batches: pa.RecordBatch) -> Reply:
    """A whole exchange."""
    return (await calls(pool, name, [batches]))[0]


async def calls(pool: Pool, name: str, exchanges: Sequence[Sequence[pa.RecordBatch]]) -> Sequence[Reply]:
    """Several exchanges, which send their rows when all of them are connected to the function's process."""
    command = exchange_pb2.ExchangeCommand(registered=exchange_pb2.RegisteredFunction(name=name))
    leases = [await leased(pool, None, REGISTERED) for _ in exchanges]
    for lease in leases:
        await send_command(lease, NUMBERS, command)
    while connections(await pool.measure_models(), name) < len(leases):
        # The answer to a question is as good as a pause.
        continue
    for lease, batches in zip(leases, exchanges, strict=True):
        await send_requests(lease, requests([batch.rename_columns(NUMBERS.names) for batch in batches]))
    replies = [await receive_reply(lease) for lease in leases]
    for lease in leases:
        lease.release(LeaseOutcome.BROKEN)
    return replies


def connections(usage: Sequence[ModelUsage], name: str) -> int:
    return sum(replica.connections for each in usage if each.name == name for replica in each.replicas)


def values(reply: Reply) -> list[list[int]]:
    assert reply.error is None, reply.error
    return [batch.column(0).to_pylist() for _, batch in reply.batches]


async def test_results_are_those_of_the_function_in_the_order_of_the_rows(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        reply = await call(pool, "doubled", numbers(3), numbers(2, 10))
    assert values(reply) == [[0, 2, 4], [20, 22]]


async def test_all_workers_share_one_process(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=3) as pool:
        replies = await calls(pool, "pid", [[numbers(5)]] * 3)
        workers = {worker.pid for worker in pool.workers}
        (process,) = next(usage.replicas for usage in pool.model_usage if usage.name == "pid")
    assert {pid for reply in replies for value in values(reply) for pid in value} == {process.pid}
    assert process.pid not in workers


async def test_rows_of_several_exchanges_are_one_batch(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=4) as pool:
        replies = await calls(pool, "batch_rows", [[numbers(25, 25 * n)] for n in range(4)])
    assert [values(reply) for reply in replies] == [[[100] * 25]] * 4


async def test_a_batch_that_is_larger_than_the_functions_comes_in_parts_and_is_answered_whole(
    zygotes: Zygotes,
) -> None:
    async with running_pool(zygotes) as pool:
        reply = await call(pool, "batch_rows", numbers(250))
    assert values(reply) == [[100] * 200 + [50] * 50]


async def test_an_error_returns_to_the_exchange_whose_rows_have_caused_it_alone(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=3) as pool:
        good, bad, other = await calls(pool, "picky", [[numbers(10)], [numbers(1), numbers(10, 10)], [numbers(5, 20)]])
    assert values(good) == [list(range(10))]
    assert values(other) == [list(range(20, 25))]
    assert bad.error is not None
    assert (bad.error.kind, bad.error.exception_class) == (exchange_pb2.ERROR_KIND_USER, "ValueError")
    assert bad.error.sequence == 2


async def test_an_exchange_that_kills_the_process_gets_an_error_and_others_their_results(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=3) as pool:
        good, bad, other = await calls(pool, "deadly", [[numbers(10)], [numbers(20)], [numbers(5, 20)]])
        assert values(good) == [list(range(10))]
        assert values(other) == [list(range(20, 25))]
        assert bad.error is not None
        assert bad.error.kind == exchange_pb2.ERROR_KIND_WORKER
        assert "the model process of function 'deadly' was killed by SIGSEGV" in bad.error.message
        # Its successor serves.
        assert values(await call(pool, "deadly", numbers(3))) == [[0, 1, 2]]
        deadly = next(usage for usage in await pool.measure_models() if usage.name == "deadly")
    assert deadly.deaths == 2
    assert deadly.fault == ""


async def test_a_process_that_hangs_is_ended_after_the_time_that_its_author_allows(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=2) as pool:
        good, bad = await calls(pool, "hanging", [[numbers(10)], [numbers(20)]])
    assert values(good) == [list(range(10))]
    assert bad.error is not None
    assert bad.error.kind == exchange_pb2.ERROR_KIND_WORKER
    assert "worked for more than 2 seconds on one batch" in bad.error.message
