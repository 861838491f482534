# SPDX-License-Identifier: Apache-2.0
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from updraft_writer.gpu.admission import DeviceAdmission, DeviceLimits, DevicePlace

PATIENT = 60.0


def admission(memory_bytes: int = 100, *, hold_seconds: float = PATIENT) -> DeviceAdmission:
    return DeviceAdmission(DeviceLimits(memory_bytes, working_set_factor=2.0, hold_seconds=hold_seconds))


class Step:
    """Row group that stays on the device until the test lets it go."""

    def __init__(self, place: DevicePlace, raw_bytes: int) -> None:
        self.entered = asyncio.Event()
        self._leave = asyncio.Event()
        self.task = asyncio.create_task(self._run(place, raw_bytes))

    async def _run(self, place: DevicePlace, raw_bytes: int) -> None:
        async with place.step(raw_bytes):
            self.entered.set()
            await self._leave.wait()

    async def leave(self) -> None:
        self._leave.set()
        await self.task


@asynccontextmanager
async def on_device(place: DevicePlace, raw_bytes: int) -> AsyncIterator[Step]:
    step = Step(place, raw_bytes)
    await step.entered.wait()
    yield step
    await step.leave()


async def waits(turn: DeviceAdmission, step: Step) -> bool:
    """Return whether a step is in the queue after all tasks have had a turn of the loop."""
    for _ in range(5):
        await asyncio.sleep(0)
    return turn.waiting > 0 and not step.entered.is_set()


async def test_as_many_row_groups_are_on_the_device_as_their_working_sets_fit() -> None:
    turn = admission()
    first, second = (turn.place(hold=False) for _ in range(2))
    async with on_device(first, 30), on_device(second, 20):
        assert turn.held_bytes == 100
        third = Step(turn.place(hold=False), 1)
        assert await waits(turn, third)
    await third.entered.wait()
    await third.leave()
    assert (turn.held_bytes, turn.waiting) == (0, 0)


async def test_a_row_group_larger_than_the_device_is_there_alone() -> None:
    turn = admission()
    async with on_device(turn.place(hold=False), 1):
        large = Step(turn.place(hold=False), 10_000)
        assert await waits(turn, large)
    await large.entered.wait()
    assert turn.held_bytes == 100
    await large.leave()


async def test_who_came_first_is_served_first_however_small_the_others_are() -> None:
    turn = admission()
    async with on_device(turn.place(hold=False), 30):
        large, small = Step(turn.place(hold=False), 40), Step(turn.place(hold=False), 1)
        assert await waits(turn, large)
        assert await waits(turn, small)
    await large.entered.wait()
    await small.entered.wait()
    await large.leave()
    await small.leave()


async def test_a_file_that_holds_keeps_its_place_between_its_row_groups_and_others_do_not() -> None:
    turn = admission()
    holding, passing = turn.place(hold=True), turn.place(hold=False)
    async with on_device(holding, 20), on_device(passing, 20):
        pass
    assert turn.held_bytes == 40
    async with on_device(holding, 10):
        assert turn.held_bytes == 40
    holding.close()
    assert turn.held_bytes == 0


async def test_a_file_that_holds_too_little_for_its_next_row_group_queues_with_nothing_held() -> None:
    turn = admission()
    one, other = turn.place(hold=True), turn.place(hold=True)
    async with on_device(one, 20), on_device(other, 20):
        pass
    steps = [Step(one, 40), Step(other, 40)]
    await steps[0].entered.wait()
    await steps[0].leave()
    one.close()
    await steps[1].entered.wait()
    await steps[1].leave()
    other.close()
    assert turn.held_bytes == 0


async def test_nothing_is_held_while_the_quota_is_short() -> None:
    is_roomy = True
    turn = DeviceAdmission(DeviceLimits(100, working_set_factor=2.0), may_hold=lambda: is_roomy)
    place = turn.place(hold=True)
    async with on_device(place, 20):
        is_roomy = False
    assert turn.held_bytes == 0
    is_roomy = True
    async with on_device(place, 20):
        pass
    assert turn.held_bytes == 40
    turn.release_idle()
    assert turn.held_bytes == 0


async def test_what_is_encoding_is_not_taken_back() -> None:
    turn = admission()
    async with on_device(turn.place(hold=True), 20):
        turn.release_idle()
        assert turn.held_bytes == 40
    turn.release_idle()
    assert turn.held_bytes == 0


async def test_a_place_that_is_held_idly_is_lost_when_another_has_waited_long_enough() -> None:
    turn = admission(hold_seconds=0.01)
    async with on_device(turn.place(hold=True), 50):
        pass
    async with on_device(turn.place(hold=False), 50):
        assert turn.held_bytes == 100
    assert turn.held_bytes == 0


async def test_a_file_that_ends_while_it_waits_waits_no_longer_and_holds_nothing() -> None:
    turn = admission()
    ended = turn.place(hold=True)
    async with on_device(turn.place(hold=False), 50):
        step = Step(ended, 10)
        assert await waits(turn, step)
        ended.close()
        await step.entered.wait()
        await step.leave()
        assert (turn.held_bytes, turn.waiting) == (100, 0)
    assert turn.held_bytes == 0


@pytest.mark.parametrize("granted", [False, True])
async def test_a_waiter_that_is_cancelled_holds_nothing_and_lets_the_next_one_in(granted: bool) -> None:
    turn = admission()
    async with on_device(turn.place(hold=False), 50):
        cancelled, following = Step(turn.place(hold=False), 50), Step(turn.place(hold=False), 10)
        assert await waits(turn, cancelled)
        if not granted:
            cancelled.task.cancel()
            await asyncio.gather(cancelled.task, return_exceptions=True)
    if granted:
        cancelled.task.cancel()
        await asyncio.gather(cancelled.task, return_exceptions=True)
    await following.entered.wait()
    await following.leave()
    assert (turn.held_bytes, turn.waiting) == (0, 0)
