# SPDX-License-Identifier: Apache-2.0
"""Real workers between exchanges: stopped, continued, and ended for what an exchange left running in them."""

import asyncio
import errno
import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from pool_driver import (
    Zygotes,
    batches_of,
    binding_of,
    exchange,
    numbers,
    pid_of,
    receive_reply,
    requests,
    running_pool,
    send_command,
    send_requests,
)
from session_commands import scalar_arrow

from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome
from updraft_server.pool.pool import Pool

HANG_SECONDS = 60.0


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def at_rest(pool: Pool, look_seconds: float = 0.01) -> None:
    """Look at the pool as a front does until no worker needs another look."""
    async with asyncio.timeout(HANG_SECONDS):
        while pool.resting.unsettled:
            pool.resting.measured(await pool.measure(pool.resting.unsettled), lambda _: "")
            await asyncio.sleep(look_seconds)


async def test_a_worker_is_stopped_between_its_exchanges_and_remembers_what_it_has_imported(zygotes: Zygotes) -> None:
    def counts(x: pa.Array) -> pa.Array:
        import builtins

        vars(builtins)["exchanges"] = exchanges = vars(builtins).get("exchanges", 0) + 1
        return pa.array([exchanges] * len(x))

    command = scalar_arrow(counts)
    command.task.owner.application_id = "application"
    async with running_pool(zygotes) as pool:
        for number in (1, 2, 3):
            reply = await exchange(pool, batches_of([1]), command)
            assert reply.table.column(0)[0].as_py() == number
            await at_rest(pool)
            [worker] = pool.workers
            assert (worker.state, is_stopped(worker.pid)) == ("stopped", True)


async def test_threads_that_go_on_computing_get_no_further_in_any_of_several_workers(zygotes: Zygotes) -> None:
    def leaves_a_thread_that_python_does_not_count(x: pa.Array) -> pa.Array:
        import _thread

        def spin() -> None:
            while True:
                pass

        _thread.start_new_thread(spin, ())
        return x

    command = scalar_arrow(leaves_a_thread_that_python_does_not_count)
    command.task.owner.application_id = "application"
    async with running_pool(zygotes, workers=4) as pool:
        leases = [await pool.lease(None, binding_of(command)) for _ in pool.workers]
        for lease in leases:
            await send_command(lease, numbers(1).schema, command)
            await send_requests(lease, requests(batches_of([1])))
            assert (await receive_reply(lease)).error is None
            lease.release(LeaseOutcome.CLEAN)
        await at_rest(pool, look_seconds=0.25)
        used = {lease.worker for lease in leases}
        # On a busy machine a thread may not have got to compute.
        await until(pool, lambda: all(info.state == "stopped" for info in pool.workers if info.worker in used))
        assert (await exchange(pool, batches_of([1]))).error is None


async def test_an_exchange_continues_its_worker_without_waiting_for_the_zygote(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        for _ in range(2):
            await exchange(pool, batches_of([1]))
            await at_rest(pool)
        [worker] = pool.workers
        await asyncio.sleep(0.5)
        os.kill(pool.zygote_pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(HANG_SECONDS):
                assert (await exchange(pool, batches_of([1]))).error is None
        finally:
            os.kill(pool.zygote_pid, signal.SIGCONT)
        # The zygote notices, and does not stop the worker again on its own.
        await asyncio.sleep(1.5)
        assert not is_stopped(worker.pid)


async def test_a_front_in_another_pid_namespace_lets_the_zygote_continue_workers(
    zygotes: Zygotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_pidfd: int, _number: int) -> None:
        raise OSError(errno.EINVAL, "the process is in another PID namespace")

    async with running_pool(zygotes) as pool:
        await exchange(pool, batches_of([1]))
        await at_rest(pool)
        await asyncio.sleep(0.5)
        monkeypatch.setattr(signal, "pidfd_send_signal", refused)
        async with asyncio.timeout(HANG_SECONDS):
            assert (await exchange(pool, batches_of([1]))).error is None


async def test_exchanges_follow_each_other_closely_although_each_one_stops_its_worker(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        await exchange(pool, batches_of([1]))
        [worker] = pool.workers
        pool._workers.by_id[worker.worker].computes_at_rest = True
        for _ in range(10):
            await exchange(pool, batches_of([1]))
        # With a notice for each exchange, the signal to continue would arrive before the order to stop.
        assert not pool._workers._notices


async def test_a_worker_that_is_stopped_right_after_a_short_exchange_stays_stopped(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        await exchange(pool, batches_of([1]))
        await at_rest(pool)
        [worker] = pool.workers
        held = pool._workers.by_id[worker.worker]
        held.computes_at_rest = True
        await asyncio.sleep(0.5)
        # The notice that this exchange continues the worker would reach the zygote after the order to stop it.
        assert (await exchange(pool, batches_of([1]))).error is None
        await asyncio.sleep(0.2)
        assert is_stopped(worker.pid)


async def test_a_stopped_worker_shows_its_stack(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        await exchange(pool, batches_of([1]))
        await at_rest(pool)
        [worker] = pool.workers
        assert "receive_header" in (await pool.stack(worker.worker) or "")
        await at_rest(pool)
        assert is_stopped(worker.pid)


async def test_a_stopped_worker_serves_before_the_next_zygote_has_loaded_and_is_stopped_again(tmp_path: Path) -> None:
    own = Zygotes(tmp_path, WorkerSettings())
    try:
        async with running_pool(own) as pool:
            await exchange(pool, batches_of([1]))
            await at_rest(pool)
            [worker] = pool.workers
            own.restart()
            async with asyncio.timeout(HANG_SECONDS):
                assert (await exchange(pool, batches_of([1]))).error is None
            await until(pool, lambda: pool._zygote.hello is not None)
            await at_rest(pool)
            assert pid_of(pool, worker.worker) == worker.pid
            assert is_stopped(worker.pid)
    finally:
        own.stop()
