# SPDX-License-Identifier: Apache-2.0
"""Elapsed time and CPU time are counted per batch, and only the next batch resets them."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence

import pytest
from fake_pool import FakePool
from flight_messages import all_replies, batch, reply_metadata
from front_harness import Running, RunningFront
from looks import Script, opened, written

from updraft.v1.exchange_pb2 import ReplyMetadata
from updraft_server.front.limits.running_exchanges import WorkTime
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.worker_usage import WorkerUsage

_LOOKS = 200


@pytest.fixture(autouse=True)
def front_that_does_not_look_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the front from looking on its own; each look of a test is a measurement, larger than the last one."""
    monkeypatch.setattr("updraft_server.front.limits.running_exchanges._LIMITS_LOOK_SECONDS", 4_000.0)


def its_output(_number: int) -> int:
    return 1


def takes_it_back(number: int) -> int:
    return number % 2


def more_than_there_are(number: int) -> int:
    return 1000 + number


CHATTER = pytest.mark.parametrize("consumed", [its_output, takes_it_back, more_than_there_are])


def test_time_counts_from_batch_to_batch_and_not_while_the_client_is_waited_for() -> None:
    time = WorkTime(10.0)
    assert [time.looked(0, is_working=True) for _ in range(3)] == [0.0, 10.0, 20.0]
    assert [time.looked(0, is_working=False) for _ in range(3)] == [20.0, 20.0, 20.0]
    assert [time.looked(0, is_working=True) for _ in range(2)] == [20.0, 30.0]
    assert [time.looked(1, is_working=True) for _ in range(2)] == [0.0, 10.0]
    assert time.looked(0, is_working=True) == 20.0
    assert time.looked(1, is_working=True) == 30.0


async def ends_while_it_talks(
    front: RunningFront, script: Script, consumed: Callable[[int], int], *, batches: int, measured: bool = False
) -> int:
    """Return how many messages a function sent for its batch before the front ended it."""
    call = await opened(front, script)
    for number in range(1, batches + 1):
        await call.write(batch(number))
        await script.got(FrameKind.BATCH)
    running = front.front.running
    [watched] = running._watched
    for number in itertools.count():
        script.replies.put_nowait(ReplyMetadata(consumed=consumed(number)))
        assert reply_metadata(await asyncio.wait_for(call.read(), 60)).consumed == consumed(number)
        await written(front)
        if measured:
            await running.look_at_limits()
        else:
            running.look_at_clocks()
        if watched.relay.end_state.exceeded_limit or number == _LOOKS:
            call.cancel()
            return number
    raise AssertionError


@CHATTER
async def test_a_function_that_talks_gains_no_cpu_time(running_front: Running, consumed: Callable[[int], int]) -> None:
    used = itertools.count(step=100)
    script = Script()
    pool = FakePool(script=script)
    pool.usage = lambda: WorkerUsage(0, "", processor_seconds=next(used))
    async with running_front(pool, batch_cpu_seconds=2_000) as front:
        looks = await ends_while_it_talks(front, script, consumed, batches=1, measured=True)
    assert 20 <= looks <= 25


@pytest.mark.parametrize("consumed", [its_output, takes_it_back])
async def test_a_function_that_talks_gains_no_time(running_front: Running, consumed: Callable[[int], int]) -> None:
    script = Script()
    async with running_front(FakePool(script=script), batch_timeout_seconds=20_000) as front:
        looks = await ends_while_it_talks(front, script, consumed, batches=2)
    # Each look is worth 4,000 seconds.
    assert 10 <= looks <= 15


async def test_a_function_that_returns_much_for_each_batch_has_its_time_for_each(running_front: Running) -> None:
    used = itertools.count(step=100)
    script = Script()
    pool = FakePool(script=script)
    pool.usage = lambda: WorkerUsage(0, "", processor_seconds=next(used))
    limits = {"batch_cpu_seconds": 2_000, "batch_timeout_seconds": 40_000}
    async with running_front(pool, client_silence_seconds=0, worker_silence_seconds=0, **limits) as front:
        call = await opened(front, script)
        [watched] = front.front.running._watched
        for number in range(1, 11):
            await call.write(batch(number))
            await script.got(FrameKind.BATCH)
            for _ in range(15):
                script.replies.put_nowait(ReplyMetadata(consumed=number))
                await asyncio.wait_for(call.read(), 60)
                await written(front)
                front.front.running.look_at_clocks()
                await front.front.running.look_at_limits()
        assert not watched.relay.end_state.exceeded_limit
        call.cancel()


async def test_time_is_counted_while_a_measurement_does_not_end(
    running_front: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stuck(FakePool):
        async def measure(self, workers: Sequence[str]) -> Mapping[str, WorkerUsage]:
            await asyncio.Event().wait()
            return {}

    monkeypatch.setattr("updraft_server.front.limits.running_exchanges._LIMITS_LOOK_SECONDS", 0.01)
    monkeypatch.setattr("updraft_server.front.limits.running_exchanges._LATE_SECONDS", 0.0)
    monkeypatch.setattr("updraft_server.front.limits.running_exchanges._IMPORTS_SECONDS", 0.0)
    script = Script()
    async with running_front(Stuck(script=script), batch_timeout_seconds=0.5) as front:
        call = await opened(front, script)
        await call.write(batch(1))
        ended = await asyncio.wait_for(all_replies(call), 30)
        assert "seconds on one batch" in str(ended[1])
