# SPDX-License-Identifier: Apache-2.0
"""Recovery of a pool whose processes are killed."""

import asyncio
import os
import select
import signal
import time
from pathlib import Path

import psutil
import pytest
from other_processes import eventually, lives
from pool_driver import (
    Zygotes,
    answers,
    batches_of,
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

from updraft_server.ipc.control import packet_pair
from updraft_server.ipc.frame_stream import PeerClosedError
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome, PoolError, TaskKey
from updraft_server.pool.pool import Pool
from updraft_server.pool.worker import WorkerState
from updraft_server.pool.worker_starts import StartPace
from updraft_server.pool.zygote_source import ControlConnection

TASK = TaskKey("app", 1, 2)


def wait_for_file(path: Path) -> None:
    """Poll for a file that another process makes, which no event announces."""
    while not path.exists():
        time.sleep(0.01)


async def test_a_spare_takes_the_place_of_a_worker_that_died(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        leases = [await pool.lease(TASK) for _ in range(2)]
        for lease in leases:
            lease.release(LeaseOutcome.CLEAN)
        spare, idle = leases
        os.kill(pid_of(pool, idle.worker), signal.SIGKILL)
        await until(pool, lambda: pool._workers.by_id[spare.worker].state is WorkerState.IDLE)
        await answers(pool)


async def kill_and_wait_for_the_next(pool: Pool) -> None:
    """Kill the only worker and wait for its successor."""
    (victim,) = pool._workers.by_id
    os.kill(pid_of(pool, victim), signal.SIGKILL)
    await until(pool, lambda: pool.idle == 1 and victim not in pool._workers.by_id)


async def test_an_idle_worker_that_is_killed_is_replaced(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        await kill_and_wait_for_the_next(pool)
        await answers(pool)


async def test_many_deaths_in_a_row_hold_the_next_worker_back_for_no_more_than_a_second(
    zygotes: Zygotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide, pauses = StartPace.next_start_after, []

    def noted(pace: StartPace, now_seconds: float) -> float:
        pauses.append(decide(pace, now_seconds))
        return pauses[-1]

    monkeypatch.setattr(StartPace, "next_start_after", noted)
    async with running_pool(zygotes) as pool:
        for _ in range(40):
            await kill_and_wait_for_the_next(pool)
        await answers(pool)
    # Checks the pool's decision, not the machine's speed: workers that start slowly enough are never held back.
    assert len(pauses) >= 41
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


async def test_the_death_of_a_worker_is_known_once_its_daemons_have_ended(zygotes: Zygotes, tmp_path: Path) -> None:
    marker = tmp_path / "daemons"

    def leaves_daemons(x, path=str(marker)):
        import os
        import time
        from pathlib import Path

        reading, writing = os.pipe()
        for _ in range(4):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    # The kernel needs a moment to reclaim memory.
                    kept = bytearray(b"x") * (10 << 20)
                    os.write(writing, b"%8d" % os.getpid())
                    time.sleep(1000 + len(kept))
                os._exit(0)
        pids = [os.read(reading, 8).decode() for _ in range(4)]
        partial = Path(path + ".part")
        partial.write_text(" ".join(pids))
        partial.rename(path)
        time.sleep(1000)

    async with running_pool(zygotes) as pool:
        lease = await pool.lease(None)
        await send_command(lease, numbers(0).schema, scalar_arrow(leaves_daemons))
        await send_requests(lease, requests(batches_of([1])))
        await asyncio.to_thread(wait_for_file, marker)
        daemons = [os.pidfd_open(int(pid)) for pid in marker.read_text().split()]
        lease.release(LeaseOutcome.CANCELLED)
        await lease.death
        ended, _, _ = select.select(daemons, [], [], 0)
        for daemon in daemons:
            os.close(daemon)
    assert ended == daemons


async def test_a_killed_zygote_leaves_running_exchanges_alone_and_the_pool_heals(tmp_path: Path) -> None:
    own = Zygotes(tmp_path, WorkerSettings(allow_session_functions=True))
    try:
        async with running_pool(own, workers=2) as pool:
            lease = await pool.lease(None)
            await send_command(lease, numbers(0).schema, scalar_arrow(lambda x: x, LongType()))
            own.restart()
            await send_requests(lease, requests(batches_of([5])))
            assert (await receive_reply(lease)).finish.rows == 5
            broken = pool._workers.by_id[lease.worker]
            lease.release(LeaseOutcome.BROKEN)
            await lease.death
            await until(pool, lambda: pool.idle == 2)
            assert broken not in pool._workers.by_id.values()
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
            assert not lives(worker)
            await until(pool, lambda: pool.idle == 1)
            await answers(pool)
    finally:
        own.stop()


async def test_a_front_that_goes_away_takes_its_workers_with_it(zygotes: Zygotes) -> None:
    async with running_pool(zygotes, workers=2) as pool:
        workers = [psutil.Process(info.pid) for info in pool.workers]
        deaths = [worker.death for worker in pool._workers.by_id.values()]
        assert pool._zygote is not None
        pool._zygote.close()
        await asyncio.gather(*deaths)
    # The zygote reaps them on its own, without a request.
    await asyncio.to_thread(eventually, lambda: not any(worker.is_running() for worker in workers))


async def test_a_pool_without_a_zygote_says_so_within_its_timeout() -> None:
    supervisors_end, fronts_end = packet_pair()
    with supervisors_end, pytest.raises(PoolError, match=r"0 of 1 workers .*has started no zygote yet"):
        async with running_pool(ControlConnection(fronts_end), start_timeout_seconds=0.7):
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
    """Kill the worker before the command, after it, or after some of the batches."""
    if moment:
        await send_command(lease, numbers(0).schema, scalar_arrow(lambda x: x))
        from updraft_server.ipc.frame_stream import FrameSender

        for frame in frames[: moment - 1]:
            await FrameSender(lease.socket).send(FrameKind.BATCH, *frame)
    os.kill(pid_of(pool, lease.worker), signal.SIGKILL)
