# SPDX-License-Identifier: Apache-2.0
"""Permissions and resources of a batched function's process, and when it ends."""

import asyncio
import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pool_driver
import pytest
from model_pool import (
    NUMBERS,
    ConnectedZygote,
    call,
    command,
    connections,
    has_made_room,
    name_of,
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
from zygote_fronts import HANG_SECONDS

from updraft.v1 import exchange_pb2
from updraft_server.ipc.frame_stream import FrameSender
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.model_packets import LimitModels
from updraft_server.pool.bindings import REGISTERED, Binding
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome
from updraft_server.pool.worker_events import WorkerOutput


@pytest.fixture(scope="module")
def zygotes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygotes]:
    with zygotes_in(tmp_path_factory.mktemp("zygote")) as started:
        yield started


@pytest.fixture
def zygotes_with_a_budget(tmp_path: Path) -> Iterator[Zygotes]:
    """Start zygotes with a model budget of 100 MiB; each large model takes 60."""
    with zygotes_in(tmp_path, model_memory_bytes=100 << 20) as started:
        yield started


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
        # Its output, its control socket, the lifeline and the pipe for its stack.
        assert descriptors_of(process.pid) == set(range(6))


def descriptors_of(pid: int) -> set[int]:
    return {int(descriptor.name) for descriptor in Path(f"/proc/{pid}/fd").iterdir()}


def walls_of(pid: int) -> dict[str, str]:
    """Return the restrictions that the kernel enforces on a process, and its environment."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    walls = {name: value for name, value in status.items() if name.startswith(("Cap", "Seccomp", "NoNewPrivs"))}
    return {**walls, "environment": Path(f"/proc/{pid}/environ").read_text()}


async def test_a_function_that_is_restricted_is_so_in_its_process_too(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        assert values(await call(pool, "free", numbers(1))) == [[1]]
        rows = [numbers(1).rename_columns(NUMBERS.names)]
        binding = Binding(None, restricted=True)
        assert values(await exchange(pool, rows, command("restricted"), binding=binding, restricted=True)) == [[0]]
        # The front treats `free` as restricted, and the workers' side does not.
        refused = await exchange(pool, rows, command("free"), binding=binding, restricted=True)
    assert refused.error is not None
    assert "cannot reach the model process of function 'free'" in refused.error.message


async def test_a_process_has_a_name_in_process_lists_and_ends_with_the_front(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        # A process may not have run at all before it has loaded.
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
        # Make sure that it has loaded.
        await call(pool, "doubled", numbers(1))
        (process,) = (await usage_of(pool, "doubled")).replicas
        stacks: list[str] = []
        while "_turn" not in "".join(stacks):
            # The pool may ask at any time, also between two turns.
            stack = await pool.stack(process.model)
            assert stack is not None
            stacks.append(stack)


async def test_processes_end_with_the_front_that_reads_what_they_print(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as first:
        await call(first, "doubled", numbers(1))
        (process,) = (await usage_of(first, "doubled")).replicas
        # The zygote meets a new front before it notices the end of the previous one.
        connection = zygotes.connection()
    async with pool_driver.running_pool(ConnectedZygote(connection)) as pool:
        while {each.model for each in (await usage_of(pool, "doubled")).replicas} <= {process.model}:
            continue
        await call(pool, "doubled", numbers(1))
        (process,) = (await usage_of(pool, "doubled")).replicas
        assert await pool.stack(process.model) is not None


async def test_a_front_that_is_served_to_its_end_has_processes_of_its_own(tmp_path: Path) -> None:
    with zygotes_in(tmp_path) as zygotes:
        async with contextlib.AsyncExitStack() as second:
            async with running_pool(zygotes) as first:
                await call(first, "doubled", numbers(1))
                pool = await second.enter_async_context(pool_driver.running_pool(zygotes))
                # The zygote should end with its last front.
                os.kill(zygotes.process.pid, signal.SIGTERM)
            assert values(await call(pool, "doubled", numbers(2))) == [[0, 2]]


async def test_a_function_makes_room_for_another_one_and_comes_back_with_its_next_call(
    zygotes_with_a_budget: Zygotes,
) -> None:
    async with running_pool(zygotes_with_a_budget) as pool:
        assert not any(usage.replicas for usage in await pool.measure_models())
        pids = [values(await call(pool, name, numbers(1)))[0][0] for name in ("large_a", "large_b")]
        # The memory of the second model is known only after a measurement.
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
        ("much_time", "seconds of CPU time for one batch, the limit is 1, and was ended"),
    ],
)
async def test_a_process_has_the_limits_of_a_worker(zygotes: Zygotes, name: str, said: str) -> None:
    limits = LimitModels(8, 64, scratch_bytes=1 << 20, scratch_files=20, batch_processor_seconds=1.0)
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
