# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from updraft.service.lifecycle import TRANSITIONS, Event, Lifecycle, Phase, next_phase


def test_a_service_starts_serves_drains_and_stops() -> None:
    lifecycle = Lifecycle()
    seen: list[Phase] = []
    lifecycle.subscribe(seen.append)
    for event in (Event.STARTED, Event.DRAIN_REQUESTED, Event.DRAINED):
        lifecycle.handle(event)
    assert seen == [Phase.READY, Phase.DRAINING, Phase.STOPPED]


def test_a_second_drain_changes_nothing() -> None:
    lifecycle = Lifecycle()
    seen: list[Phase] = []
    lifecycle.handle(Event.DRAIN_REQUESTED)
    lifecycle.subscribe(seen.append)
    lifecycle.handle(Event.DRAIN_REQUESTED)
    lifecycle.handle(Event.STARTED)
    assert seen == []
    assert lifecycle.phase is Phase.DRAINING


@pytest.mark.parametrize("phase", Phase)
def test_a_drain_may_be_requested_in_every_phase(phase: Phase) -> None:
    assert next_phase(TRANSITIONS, phase, Event.DRAIN_REQUESTED) in (Phase.DRAINING, Phase.STOPPED)


def test_what_cannot_happen_is_refused() -> None:
    with pytest.raises(ValueError, match="drained cannot happen while ready"):
        next_phase(TRANSITIONS, Phase.READY, Event.DRAINED)


async def test_who_waits_for_the_drain_is_woken() -> None:
    lifecycle = Lifecycle()
    waiting = asyncio.create_task(lifecycle.drain_requested())
    await asyncio.sleep(0)
    assert not waiting.done()
    lifecycle.handle(Event.DRAIN_REQUESTED)
    await asyncio.wait_for(waiting, 60)
