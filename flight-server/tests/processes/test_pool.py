# SPDX-License-Identifier: Apache-2.0
"""Leases, healing, and what a pool does when its processes are killed."""

import asyncio
import os
import select
import signal
import time
from pathlib import Path

import psutil
import pytest
import structlog.testing
from pool_driver import (
    Zygotes,
    batches_of,
    exchange,
    numbers,
    pid_of,
    receive_reply,
    requests,
    running_pool,
    send_command,
    send_requests,
)
from pyspark.sql.types import LongType
from session_commands import scalar_arrow

from updraft_server.ipc.frame_stream import PeerClosedError
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome, NoIdleWorker, PoolError, TaskKey
from updraft_server.pool.pool import Pool
from updraft_server.pool.worker import WorkerState
from updraft_server.pool.worker_events import DroppedOutput, WorkerOutput

TASK = TaskKey("app", 1, 2)
OTHER_TASK = TaskKey("another application", 1, 2)


def wait_for_file(path: Path) -> None:
    """Another process brings it about: nothing here could wake us."""
    while not path.exists():
        time.sleep(0.01)


async def answers(pool: Pool) -> None:
    await until(pool, lambda: pool.idle > 0)
    assert (await exchange(pool, batches_of([1]))).error is None


async def test_echo_gives_back_every_batch_under_its_number(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        sent = batches_of([3, 1, 1000])
        reply = await exchange(pool, sent)
    assert reply.batches == list(enumerate(sent, 1))
    assert reply.schema == sent[0].schema
    assert (reply.finish.batches, reply.finish.rows) == (3, 1004)
    assert reply.ending is FrameKind.DONE


async def test_a_started_pool_is_warm_and_knows_what_it_runs(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=3) as pool:
        assert (pool.idle, pool.busy, pool.starting) == (3, 0, 0)
        assert [function.name for function in pool.functions] == ["echo"]
        assert pool.python_version.startswith("3.")
        assert pool.pyspark_version.startswith("4.")


async def test_a_clean_worker_is_used_again_and_a_broken_one_is_not(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        first = await pool.lease(None)
        first.release(LeaseOutcome.CLEAN)
        second = await pool.lease(None)
        assert second.worker == first.worker
        second.release(LeaseOutcome.BROKEN)
        second.release(LeaseOutcome.CLEAN)
        await until(pool, lambda: pool.idle == 1)
        third = await pool.lease(None)
        assert third.worker != second.worker
        third.release(LeaseOutcome.CLEAN)


async def test_without_an_idle_worker_a_lease_is_refused_at_once(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        held = await pool.lease(TASK)
        with pytest.raises(NoIdleWorker):
            await pool.lease(None)
        with pytest.raises(NoIdleWorker):
            await pool.lease(TaskKey("app", 1, 3))
        held.release(LeaseOutcome.CLEAN)
        assert pool.idle == 1


async def test_a_task_gets_extra_workers_up_to_its_limit_and_they_do_not_stay(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers_per_task=3, spare_seconds=0.0) as pool:
        leases = [await pool.lease(TASK) for _ in range(3)]
        assert len({lease.worker for lease in leases}) == 3
        assert pool.busy == 3
        with pytest.raises(NoIdleWorker):
            await pool.lease(TASK)
        for lease in leases:
            lease.release(LeaseOutcome.CLEAN)
        assert (pool.idle, pool.busy) == (1, 0)
        await asyncio.gather(*(lease.death for lease in leases[:2]))
        await answers(pool)


async def test_an_extra_worker_is_kept_for_the_next_task_that_needs_several(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        before = [await pool.lease(TASK) for _ in range(2)]
        for lease in before:
            lease.release(LeaseOutcome.CLEAN)
        first = await pool.lease(OTHER_TASK)
        with pytest.raises(NoIdleWorker):
            await pool.lease(TASK)
        second = await pool.lease(OTHER_TASK)
        assert {first.worker, second.worker} == {lease.worker for lease in before}
        first.release(LeaseOutcome.BROKEN)
        second.release(LeaseOutcome.CLEAN)
        await answers(pool)


async def test_a_spare_takes_the_place_of_a_worker_that_died(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        leases = [await pool.lease(TASK) for _ in range(2)]
        for lease in leases:
            lease.release(LeaseOutcome.CLEAN)
        spare, idle = leases
        os.kill(pid_of(pool, idle.worker), signal.SIGKILL)
        await until(pool, lambda: pool._workers[spare.worker].state is WorkerState.IDLE)
        await answers(pool)


async def kill_and_wait_for_the_next(pool: Pool) -> None:
    """SIGKILL for the only worker."""
    (victim,) = pool._workers
    os.kill(pid_of(pool, victim), signal.SIGKILL)
    await until(pool, lambda: pool.idle == 1 and victim not in pool._workers)


async def test_an_idle_worker_that_is_killed_is_replaced(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        await kill_and_wait_for_the_next(pool)
        await answers(pool)


async def test_many_deaths_in_a_row_hold_the_next_worker_back_for_no_more_than_a_second(zygotes: Zygotes) -> None:
    with structlog.testing.capture_logs() as logged:
        async with running_pool(zygotes) as pool:
            for _ in range(40):
                await kill_and_wait_for_the_next(pool)
            await answers(pool)
    # What the pool decides, not what this machine makes of it: one that is slow enough is never held back.
    pauses = [entry["seconds"] for entry in logged if "the next start waits" in entry["event"]]
    assert all(0 <= seconds <= 1.0 for seconds in pauses), pauses


async def test_exits_are_counted_by_what_ended_the_worker(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        os.kill(pool.workers[0].pid, signal.SIGKILL)
        await until(pool, lambda: pool.exits["signal"] == 1 and pool.idle == 1)
        (await pool.lease(None)).release(LeaseOutcome.BROKEN)
        await until(pool, lambda: pool.exits["pool"] == 1 and pool.idle == 1)
    assert pool.exits["signal"] == 1


async def test_killing_one_worker_does_not_disturb_the_exchange_of_another(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=2) as pool:
        killed, spared = await pool.lease(None), await pool.lease(None)
        for lease in (killed, spared):
            await send_command(lease, numbers(0).schema, scalar_arrow(lambda x: x))
        os.kill(pid_of(pool, killed.worker), signal.SIGKILL)
        with pytest.raises(PeerClosedError):
            await receive_reply(killed)
        assert (await killed.death).signal == signal.SIGKILL
        await send_requests(spared, requests(batches_of([5])))
        assert (await receive_reply(spared)).finish.rows == 5
        killed.release(LeaseOutcome.BROKEN)
        spared.release(LeaseOutcome.CLEAN)
        await until(pool, lambda: pool.idle == 2)


async def test_a_cancelled_function_is_killed_with_its_children(zygotes: Zygotes, tmp_path: Path) -> None:
    marker = tmp_path / "child"

    def hangs(x, path=str(marker)):
        import subprocess
        import time
        from pathlib import Path

        child = subprocess.Popen(["sleep", "1000"])
        partial = Path(path + ".part")
        partial.write_text(str(child.pid))
        partial.rename(path)
        time.sleep(1000)

    async with running_pool(zygotes) as pool:
        lease = await pool.lease(None)
        await send_command(lease, numbers(0).schema, scalar_arrow(hangs))
        await send_requests(lease, requests(batches_of([1])))
        await asyncio.to_thread(wait_for_file, marker)
        child = os.pidfd_open(int(marker.read_text()))
        lease.release(LeaseOutcome.CANCELLED)
        assert (await lease.death).signal == signal.SIGKILL
        assert await asyncio.to_thread(select.select, [child], [], [], 60) == ([child], [], [])
        os.close(child)
        await answers(pool)


async def test_a_killed_zygote_leaves_running_exchanges_alone_and_the_pool_heals(tmp_path: Path) -> None:
    own = Zygotes(tmp_path, WorkerSettings(allow_session_functions=True))
    try:
        async with running_pool(own, workers=2) as pool:
            lease = await pool.lease(None)
            await send_command(lease, numbers(0).schema, scalar_arrow(lambda x: x, LongType()))
            own.restart()
            await send_requests(lease, requests(batches_of([5])))
            assert (await receive_reply(lease)).finish.rows == 5
            broken = pool._workers[lease.worker]
            lease.release(LeaseOutcome.BROKEN)
            await lease.death
            await until(pool, lambda: pool.idle == 2)
            assert broken not in pool._workers.values()
            await answers(pool)
    finally:
        own.stop()


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_worker_of_a_killed_zygote_is_still_ended_by_the_pool(tmp_path: Path, moment: str) -> None:
    marker = tmp_path / "running"

    def hangs(x, path=str(marker)):
        import time
        from pathlib import Path

        Path(path).touch()
        time.sleep(1000)

    own = Zygotes(tmp_path, WorkerSettings(allow_session_functions=True))
    try:
        async with running_pool(own) as pool:
            lease = await pool.lease(None)
            worker = psutil.Process(pid_of(pool, lease.worker))
            await send_command(lease, numbers(0).schema, scalar_arrow(hangs))
            await send_requests(lease, requests(batches_of([1])))
            await asyncio.to_thread(wait_for_file, marker)
            own.process.end()
            if moment == "before":
                lease.release(LeaseOutcome.CANCELLED)
            own.restart()
            if moment == "after":
                await until(pool, lambda: pool.zygote_pid == own.process.pid)
                lease.release(LeaseOutcome.CANCELLED)
            async with asyncio.timeout(60):
                await lease.death
            assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
            await until(pool, lambda: pool.idle == 1)
            await answers(pool)
    finally:
        own.stop()


async def test_the_front_keeps_what_was_last_measured_of_each_worker(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=2) as pool:
        assert [info.memory_bytes for info in pool.workers] == [None, None]
        first, second = (info.worker for info in pool.workers)
        usage = await pool.measure([first, "gone-1"])
        assert set(usage) == {first}
        assert usage[first].memory_bytes > 1024 * 1024
        assert (await pool.measure([first]))[first].processor_mark == usage[first].processor_mark
        assert {info.worker: info.memory_bytes for info in pool.workers} == {
            first: usage[first].memory_bytes,
            second: None,
        }


async def test_a_front_that_goes_away_takes_its_workers_with_it(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=2) as pool:
        workers = [psutil.Process(info.pid) for info in pool.workers]
        deaths = [worker.death for worker in pool._workers.values()]
        assert pool._zygote is not None
        pool._zygote.close()
        await asyncio.gather(*deaths)
    assert not any(worker.is_running() for worker in workers)


async def test_a_pool_without_a_zygote_says_so_within_its_timeout(tmp_path: Path) -> None:
    nowhere = Zygotes.__new__(Zygotes)
    nowhere.path = tmp_path / "nobody.sock"
    with pytest.raises(PoolError, match=r"0 of 1 workers .*nobody\.sock"):
        async with running_pool(nowhere, start_timeout_seconds=0.3):
            pass


async def test_workers_that_never_become_ready_are_reported_in_words(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "dying_functions.py").write_text("import os\nos.register_at_fork(after_in_child=lambda: os._exit(9))\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    broken = Zygotes(tmp_path, WorkerSettings(), modules=["dying_functions"])
    try:
        with pytest.raises(PoolError, match="exited with code 9"):
            async with running_pool(broken):
                pass
    finally:
        broken.stop()


async def test_a_module_that_cannot_be_imported_ends_the_zygote_with_its_own_status(tmp_path: Path) -> None:
    from updraft_server.ipc.zygote_packets import EXIT_IMAGE_BROKEN

    broken = Zygotes(tmp_path, WorkerSettings(), modules=["no_such_module"])
    try:
        status = os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, broken.process.pid, 0))[1])
        assert status == EXIT_IMAGE_BROKEN
    finally:
        broken.stop()


async def test_what_a_function_prints_comes_with_its_exchange(zygotes: Zygotes) -> None:
    lines: list[WorkerOutput] = []

    def talks(x):
        import sys

        sys.stdout.write(f"hello {x[0]}\n")
        sys.stderr.write("error\n")
        return x

    async with running_pool(zygotes, on_output=lines.append) as pool:
        lease = await pool.lease(None)
        lease.log_context["task"] = "7"
        await send_command(lease, numbers(0).schema, scalar_arrow(talks))
        await send_requests(lease, requests(batches_of([1])))
        await receive_reply(lease)
        lease.release(LeaseOutcome.CLEAN)
    assert [(line.line, line.context, line.worker) for line in lines] == [
        ("hello 0", {"task": "7"}, lease.worker),
        ("error", {"task": "7"}, lease.worker),
    ]


async def test_a_function_that_prints_without_end_is_not_blocked(zygotes: Zygotes) -> None:
    lines: list[WorkerOutput] = []
    drops: list[DroppedOutput] = []

    def floods(x):
        import sys

        for _ in range(20_000):
            sys.stdout.write("y" * 999 + "\n")
        return x

    async with running_pool(zygotes, on_output=lines.append, on_drop=drops.append, output_lines_per_second=100) as pool:
        lease = await pool.lease(None)
        lease.log_context["task"] = "7"
        await send_command(lease, numbers(0).schema, scalar_arrow(floods))
        await send_requests(lease, requests(batches_of([1])))
        reply = await receive_reply(lease)
        lease.release(LeaseOutcome.CLEAN)
    assert reply.error is None
    # A burst at once; the rest of what is let through comes with time.
    assert 200 <= len(lines) < 20_000
    assert sum(drop.lines for drop in drops) == 20_000 - len(lines)
    assert {(drop.worker, drop.context["task"]) for drop in drops} == {(lease.worker, "7")}


async def test_a_worker_is_replaced_after_its_number_of_exchanges(tmp_path: Path) -> None:
    limited = Zygotes(tmp_path, WorkerSettings(max_exchanges=2))
    try:
        async with running_pool(limited) as pool:
            endings = []
            for _ in range(3):
                await until(pool, lambda: pool.idle == 1)
                endings.append((await exchange(pool, batches_of([1]))).ending)
    finally:
        limited.stop()
    assert endings == [FrameKind.DONE, FrameKind.RETIRED, FrameKind.DONE]


@pytest.mark.parametrize("moment", range(5))
async def test_a_worker_killed_at_any_moment_fails_only_its_own_exchange(zygotes: Zygotes, moment: int) -> None:
    async with running_pool(zygotes) as pool:
        lease = await pool.lease(None)
        frames = requests(batches_of([1000] * 4))
        killing = asyncio.create_task(_kill_during(pool, lease, moment, frames))
        with pytest.raises(PeerClosedError):
            await receive_reply(lease)
        await killing
        lease.release(LeaseOutcome.BROKEN)
        await answers(pool)


async def _kill_during(pool: Pool, lease, moment: int, frames: list) -> None:
    """Kill before the command, after it, or after some of the batches."""
    if moment:
        await send_command(lease, numbers(0).schema, scalar_arrow(lambda x: x))
        from updraft_server.ipc.frame_stream import FrameSender

        for frame in frames[: moment - 1]:
            await FrameSender(lease.socket).send(FrameKind.BATCH, *frame)
    os.kill(pid_of(pool, lease.worker), signal.SIGKILL)
