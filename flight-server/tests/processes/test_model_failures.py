# SPDX-License-Identifier: Apache-2.0
"""Batched functions that end, hang, mislead or never load their process, and which callers that affects."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from model_pool import (
    NUMBERS,
    call,
    calls,
    command,
    connections,
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
    send_command,
)

from updraft.v1 import exchange_pb2
from updraft_server.pool.bindings import REGISTERED
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome


@pytest.fixture(scope="module")
def zygotes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygotes]:
    with zygotes_in(tmp_path_factory.mktemp("zygote")) as started:
        yield started


async def test_an_exchange_that_kills_the_process_gets_an_error_and_others_their_results(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=3) as pool:
        good, bad, other = await calls(pool, "deadly", [[numbers(10)], [numbers(20)], [numbers(5, 20)]])
        assert values(good) == [list(range(10))]
        assert values(other) == [list(range(20, 25))]
        assert bad.error is not None
        assert bad.error.kind == exchange_pb2.ERROR_KIND_WORKER
        assert "the model process of function 'deadly' was killed by SIGSEGV" in bad.error.message
        # The successor serves.
        assert values(await call(pool, "deadly", numbers(3))) == [[0, 1, 2]]
        deadly = await usage_of(pool, "deadly")
        assert ("deadly", "1") not in pool.model_faults
    assert deadly.deaths == 2


async def test_a_function_that_kills_process_after_process_is_at_fault_until_one_survives_a_batch(
    tmp_path: Path,
) -> None:
    deadly = ("deadly", "1")
    with zygotes_in(tmp_path) as zygotes:
        async with running_pool(zygotes) as pool:
            for _ in range(2):
                # Each call kills the process that has its rows, and the next one, which has only its rows.
                assert (await call(pool, "deadly", numbers(20))).error is not None
            await until(pool, lambda: "it has killed 4 model processes in a row" in pool.model_faults.get(deadly, ""))
            while not any(replica.state == "ready" for replica in (await usage_of(pool, "deadly")).replicas):
                continue
            assert "the last one was killed by SIGSEGV" in pool.model_faults[deadly]
            assert values(await call(pool, "doubled", numbers(2))) == [[0, 2]]
            assert values(await call(pool, "deadly", numbers(3))) == [[0, 1, 2]]
            await until(pool, lambda: deadly not in pool.model_faults)


async def test_the_child_of_a_function_that_forks_answers_nobody(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        reply = await call(pool, "forking", *(numbers(1, number) for number in range(1, 4)))
    assert values(reply) == [[1], [2], [3]]


async def test_the_child_of_a_function_that_forks_as_it_is_loaded_serves_nobody(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        pids = {values(await call(pool, "forked_as_loaded", numbers(1)))[0][0] for _ in range(20)}
        (process,) = (await usage_of(pool, "forked_as_loaded")).replicas
    assert pids == {process.pid}


async def test_a_process_whose_function_closes_a_connection_of_another_exchange_is_replaced(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=2) as pool:
        idle = await leased(pool, None, REGISTERED)
        await send_command(idle, NUMBERS, command("careless"))
        while connections(await pool.measure_models(), "careless") < 1:
            continue
        (before,) = (await usage_of(pool, "careless")).replicas
        await exchange(pool, [numbers(1).rename_columns(NUMBERS.names)], command("careless"), binding=REGISTERED)
        while before.pid in {replica.pid for replica in (await usage_of(pool, "careless")).replicas}:
            continue
        idle.release(LeaseOutcome.BROKEN)


@pytest.mark.parametrize("name", ["hanging", "stopping"])
async def test_a_process_that_hangs_is_ended_after_the_time_that_its_author_allows(zygotes: Zygotes, name: str) -> None:
    async with running_pool(zygotes, workers=2) as pool:
        good, bad = await calls(pool, name, [[numbers(10)], [numbers(20)]])
    assert values(good) == [list(range(10))]
    assert bad.error is not None
    assert bad.error.kind == exchange_pb2.ERROR_KIND_WORKER
    assert "worked for more than 2 seconds on one batch" in bad.error.message


async def test_a_process_that_runs_another_program_is_ended(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        reply = await call(pool, "another_program", numbers(20))
        assert values(await call(pool, "another_program", numbers(2))) == [[0, 1]]
    assert reply.error is not None
    assert reply.error.kind == exchange_pb2.ERROR_KIND_WORKER
    assert "closed its connection to the pool, or ran another program in its place" in reply.error.message


async def test_a_function_that_cannot_be_loaded_says_why_and_is_loaded_again_later(tmp_path: Path) -> None:
    with zygotes_in(tmp_path) as zygotes:
        async with running_pool(zygotes, workers=2) as pool:
            refused = await exchange(pool, [numbers(1).rename_columns(NUMBERS.names)], command("without_weights"))
            assert refused.error is not None
            assert refused.error.kind == exchange_pb2.ERROR_KIND_FUNCTION_LOAD
            reason = "its model process could not load the function: FileNotFoundError: no weights"
            assert reason in refused.error.message
            assert pool.model_faults[("without_weights", "1")] == reason
            # Other functions have no fault.
            assert values(await call(pool, "doubled", numbers(2))) == [[0, 2]]
            # It has no fault yet before the first attempt has failed.
            while not (await usage_of(pool, "second_attempt")).loads:
                continue
            assert ("second_attempt", "1") not in pool.model_faults
            assert values(await call(pool, "second_attempt", numbers(2))) == [[0, 2]]
            assert (await usage_of(pool, "second_attempt")).deaths == 1


async def test_a_function_that_never_loads_is_at_fault_and_no_other_waits_for_it(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        assert values(await call(pool, "doubled", numbers(1))) == [[0]]
        await until(pool, lambda: ("never", "1") in pool.model_faults)
        assert "did not load the function within 0.5 seconds" in pool.model_faults[("never", "1")]
