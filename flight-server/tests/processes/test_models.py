# SPDX-License-Identifier: Apache-2.0
"""Batched functions in real processes: forked by a zygote, called by workers."""

import asyncio
import contextlib
import os
import select
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import model_functions
import pool_driver
import pyarrow as pa
import pytest
from pool_driver import (
    Reply,
    Zygotes,
    exchange,
    leased,
    numbers,
    receive_reply,
    requests,
    send_command,
    send_requests,
)
from zygote_fronts import HANG_SECONDS

from updraft.v1 import exchange_pb2
from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.ipc.frame_stream import FrameSender
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.model_packets import LimitModels, ModelUsage
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.pool.bindings import REGISTERED, Binding
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome
from updraft_server.pool.pool import Pool
from updraft_server.pool.worker_events import WorkerOutput

NUMBERS = pa.schema([pa.field("number", pa.int64())])


@contextlib.contextmanager
def zygotes_in(directory: Path, **settings: Any) -> Iterator[Zygotes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(model_functions.__file__).parent))
        patch.setenv("HOME", str(directory))
        worker = WorkerSettings(restricted_functions=("restricted",))
        started = Zygotes(directory, worker, ["model_functions"], **settings)
        yield started
        started.stop()


@pytest.fixture(scope="module")
def zygotes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygotes]:
    with zygotes_in(tmp_path_factory.mktemp("zygote")) as started:
        yield started


@pytest.fixture
def zygotes_with_a_budget(tmp_path: Path) -> Iterator[Zygotes]:
    """Of 100 MiB, where each large model takes 60."""
    with zygotes_in(tmp_path, model_memory_bytes=100 << 20) as started:
        yield started


@contextlib.asynccontextmanager
async def running_pool(zygotes: Zygotes, **settings: Any) -> AsyncIterator[Pool]:
    """A pool whose processes are all its own: those of a front that the zygote has not seen go yet would end later."""
    async with pool_driver.running_pool(zygotes, **settings) as pool:
        own = pool._models._current._processes
        while not all(replica.model in own for each in await pool.measure_models() for replica in each.replicas):
            continue
        yield pool


def record_of(usage: ModelUsage) -> BatchRecord:
    return BatchRecord.from_plain(usage.record)


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


class ConnectedZygote:
    """A source of one connection, which there is already."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    async def next(self) -> socket.socket:
        return self._connection


async def usage_of(pool: Pool, name: str) -> ModelUsage:
    return next(usage for usage in await pool.measure_models() if usage.name == name)


def command(name: str) -> exchange_pb2.ExchangeCommand:
    return exchange_pb2.ExchangeCommand(registered=exchange_pb2.RegisteredFunction(name=name))


async def call(pool: Pool, name: str, *batches: pa.RecordBatch) -> Reply:
    """A whole exchange."""
    return (await calls(pool, name, [batches]))[0]


async def calls(pool: Pool, name: str, exchanges: Sequence[Sequence[pa.RecordBatch]]) -> Sequence[Reply]:
    """Several exchanges, which send their rows when all of them are connected to the function's process."""
    leases = [await leased(pool, None, REGISTERED) for _ in exchanges]
    for lease in leases:
        await send_command(lease, NUMBERS, command(name))
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


async def has_made_room(pool: Pool, *names: str) -> None:
    """Return once one of the functions has no process any more."""
    while not any(each.evictions and not each.replicas for each in [await usage_of(pool, name) for name in names]):
        continue


def values(reply: Reply) -> list[list[int]]:
    assert reply.error is None, reply.error
    return [batch.column(0).to_pylist() for _, batch in reply.batches]


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
                # Each kills the process that has its rows, and the next one, which has nobody else's.
                assert (await call(pool, "deadly", numbers(20))).error is not None
            await until(pool, lambda: "4 model processes in a row have died of it" in pool.model_faults.get(deadly, ""))
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


async def test_exchanges_wait_for_a_process_that_works_and_those_of_other_functions_do_not(tmp_path: Path) -> None:
    async def call_often() -> None:
        # A connection each: more than a process can be sent while it reads nothing.
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


async def test_a_function_that_cannot_be_loaded_says_why_and_is_loaded_again_later(tmp_path: Path) -> None:
    with zygotes_in(tmp_path) as zygotes:
        async with running_pool(zygotes, workers=2) as pool:
            refused = await exchange(pool, [numbers(1).rename_columns(NUMBERS.names)], command("without_weights"))
            assert refused.error is not None
            assert refused.error.kind == exchange_pb2.ERROR_KIND_FUNCTION_REFUSED
            reason = "its model process could not load the function: FileNotFoundError: no weights"
            assert reason in refused.error.message
            assert pool.model_faults[("without_weights", "1")] == reason
            # Nobody else is at fault.
            assert values(await call(pool, "doubled", numbers(2))) == [[0, 2]]
            # No fault is known of it before the first attempt has failed either.
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


async def test_a_process_is_sandboxed_and_has_a_place_for_temporary_files(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        reply = await call(pool, "status", numbers(4))
    assert values(reply) == [[2, 1, 0, 1]]


async def test_a_process_has_the_walls_of_a_worker_and_nothing_of_the_zygotes(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=1) as pool:
        (worker,) = pool.workers
        walls = walls_of(worker.pid)
        await call(pool, "doubled", numbers(1))
        (process,) = (await usage_of(pool, "doubled")).replicas
        assert walls_of(process.pid) == walls
        while connections(await pool.measure_models(), "doubled"):
            continue
        # Its output, its control, the lifeline and the pipe for its stack.
        assert descriptors_of(process.pid) == set(range(6))


def descriptors_of(pid: int) -> set[int]:
    return {int(descriptor.name) for descriptor in Path(f"/proc/{pid}/fd").iterdir()}


def walls_of(pid: int) -> dict[str, str]:
    """What the kernel holds a process to, and what it was started with."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    walls = {name: value for name, value in status.items() if name.startswith(("Cap", "Seccomp", "NoNewPrivs"))}
    return {**walls, "environment": Path(f"/proc/{pid}/environ").read_text()}


async def test_a_function_that_is_restricted_is_so_in_its_process_too(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        assert values(await call(pool, "free", numbers(1))) == [[1]]
        rows = [numbers(1).rename_columns(NUMBERS.names)]
        binding = Binding(None, restricted=True)
        assert values(await exchange(pool, rows, command("restricted"), binding=binding, restricted=True)) == [[0]]
        # The front says so of another function than the workers' side was told of.
        refused = await exchange(pool, rows, command("free"), binding=binding, restricted=True)
    assert refused.error is not None
    assert "there is no way to the model process of function 'free'" in refused.error.message


async def test_a_process_has_a_name_in_process_lists_and_ends_with_the_front(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        # Before it has loaded it may not have run yet.
        await call(pool, "doubled", numbers(1))
        (process,) = (await usage_of(pool, "doubled")).replicas
        assert name_of(process.pid) == "updraft-model\n"
        pidfd = os.pidfd_open(process.pid)
    assert await asyncio.to_thread(select.select, [pidfd], [], [], HANG_SECONDS) == ([pidfd], [], [])
    os.close(pidfd)


async def test_what_a_process_prints_is_logged_with_its_function(zygotes: Zygotes) -> None:
    lines: asyncio.Queue[WorkerOutput] = asyncio.Queue()
    async with asyncio.timeout(HANG_SECONDS), running_pool(zygotes, on_output=lines.put_nowait):
        while (output := await lines.get()).line != "loading weights":
            continue
    assert output.context == {"function": "talkative", "version": "1"}


async def test_the_stack_of_a_process_can_be_read(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        # Once it has loaded.
        await call(pool, "doubled", numbers(1))
        (process,) = (await usage_of(pool, "doubled")).replicas
        stacks: list[str] = []
        while "_turn" not in "".join(stacks):
            # It is asked at any time, between two turns too.
            stack = await pool.stack(process.model)
            assert stack is not None
            stacks.append(stack)


async def test_processes_end_with_the_front_that_reads_what_they_print(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as first:
        await call(first, "doubled", numbers(1))
        (process,) = (await usage_of(first, "doubled")).replicas
        # The zygote meets a front while it has not seen yet that the one before has gone.
        connection = zygotes.connection()
    async with pool_driver.running_pool(ConnectedZygote(connection)) as pool:
        while {each.model for each in (await usage_of(pool, "doubled")).replicas} <= {process.model}:
            continue
        await call(pool, "doubled", numbers(1))
        (process,) = (await usage_of(pool, "doubled")).replicas
        assert await pool.stack(process.model) is not None


async def test_a_function_makes_room_for_another_one_and_comes_back_with_its_next_call(
    zygotes_with_a_budget: Zygotes,
) -> None:
    async with running_pool(zygotes_with_a_budget) as pool:
        assert not any(usage.replicas for usage in await pool.measure_models())
        pids = [values(await call(pool, name, numbers(1)))[0][0] for name in ("large_a", "large_b")]
        # How much memory the second one takes is known once it was measured.
        await has_made_room(pool, "large_a")
        pids.append(values(await call(pool, "large_a", numbers(1)))[0][0])
        usage = await usage_of(pool, "large_a")
    assert len(set(pids)) == 3
    assert (usage.loads, usage.evictions, usage.deaths) == (2, 1, 0)
    assert 60 << 20 < usage.replicas[0].memory_bytes < 100 << 20


async def test_an_exchange_whose_function_makes_room_goes_on_with_it_once_it_is_back(
    zygotes_with_a_budget: Zygotes,
) -> None:
    first, second, finish = requests([numbers(1).rename_columns(NUMBERS.names)] * 2)
    async with running_pool(zygotes_with_a_budget, workers=2) as pool:
        leases = [await leased(pool, None, REGISTERED) for _ in range(2)]
        for lease, name in zip(leases, ("large_a", "large_b"), strict=True):
            await send_command(lease, NUMBERS, command(name))
            await FrameSender(lease.socket).send(FrameKind.BATCH, *first)
        await has_made_room(pool, "large_a", "large_b")
        for lease in leases:
            await send_requests(lease, [second, finish])
        replies = [await receive_reply(lease) for lease in leases]
        for lease in leases:
            lease.release(LeaseOutcome.BROKEN)
    pids = [pid for reply in replies for value in values(reply) for pid in value]
    assert len(pids) == 4
    assert len(set(pids)) > 2


async def test_a_process_that_takes_more_than_all_may_is_ended_and_its_exchange_told(
    zygotes_with_a_budget: Zygotes,
) -> None:
    async with running_pool(zygotes_with_a_budget) as pool:
        reply = await call(pool, "greedy", numbers(1))
    assert reply.error is not None
    assert reply.error.kind == exchange_pb2.ERROR_KIND_WORKER
    assert "the limit is 104857600, and was ended: raise --model-memory-bytes" in reply.error.message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("many_processes", "processes, the limit is 8, and was ended"),
        ("many_threads", "threads in its processes together, the limit is 64, and was ended"),
        ("many_bytes", "bytes in its scratch directory, the limit is 1048576, and was ended"),
        ("many_files", "files in its scratch directory, the limit is 20, and was ended"),
        ("much_time", "seconds of CPU time for one batch, the limit is 3, and was ended"),
    ],
)
async def test_a_process_has_the_limits_of_a_worker(zygotes: Zygotes, name: str, said: str) -> None:
    limits = LimitModels(8, 64, scratch_bytes=1 << 20, scratch_files=20, batch_processor_seconds=3.0)
    async with running_pool(zygotes, model_limits=limits) as pool:
        reply = await call(pool, name, numbers(1))
        assert values(await call(pool, "doubled", numbers(1, 21))) == [[42]]
    assert reply.error is not None
    assert reply.error.kind == exchange_pb2.ERROR_KIND_WORKER
    assert said in reply.error.message


async def test_idle_workers_and_models_of_a_zygote_that_died_make_way_for_those_of_the_next_one(tmp_path: Path) -> None:
    with zygotes_in(tmp_path) as zygotes:
        async with running_pool(zygotes, workers=2) as pool:
            (before,) = values(await call(pool, "pid", numbers(1)))
            pidfd = os.pidfd_open(before[0])
            workers = {worker.pid for worker in pool.workers}
            zygotes.restart()
            assert await asyncio.to_thread(select.select, [pidfd], [], [], HANG_SECONDS) == ([pidfd], [], [])
            os.close(pidfd)
            await until(pool, lambda: pool.idle == 2 and not workers & {worker.pid for worker in pool.workers})
            (after,) = values(await call(pool, "pid", numbers(1)))
    assert after != before
