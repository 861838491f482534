# SPDX-License-Identifier: Apache-2.0
"""Timer that ends a function: arming it never fails, whatever a client asks for."""

import signal
from collections.abc import Iterator

import pytest

from updraft_server.worker.batch_clock import BatchClock


@pytest.fixture
def clock() -> Iterator[BatchClock]:
    clock = BatchClock()
    # A process has one such timer, and pytest's own timeout uses it.
    of_pytest = signal.setitimer(signal.ITIMER_REAL, 0)
    yield clock
    clock.stop()
    signal.setitimer(signal.ITIMER_REAL, *of_pytest)


def armed_seconds() -> float:
    return signal.getitimer(signal.ITIMER_REAL)[0]


def test_a_limit_arms_the_timer_and_a_pause_disarms_it(clock: BatchClock) -> None:
    clock.limit(batch_seconds=1000.0, idle_seconds=2000.0)
    clock.start()
    assert 0 < armed_seconds() <= 1000.0
    clock.pause()
    assert armed_seconds() == 0


@pytest.mark.parametrize("seconds", [0.0, (2**63 - 1) / 1000, 1e300])
def test_a_limit_beyond_what_a_timer_takes_is_like_none(clock: BatchClock, seconds: float) -> None:
    clock.limit(batch_seconds=seconds, idle_seconds=seconds)
    clock.start()
    assert armed_seconds() == 0


def test_batches_that_were_kept_have_their_time_when_they_are_worked_on(clock: BatchClock) -> None:
    clock.limit(batch_seconds=1000.0, idle_seconds=300.0)
    clock.start()
    clock.allow_for(0)
    assert 200.0 < armed_seconds() <= 300.0
    clock.allow_for(2)
    assert 800.0 < armed_seconds() <= 900.0
    clock.pause()
    clock.limit(batch_seconds=1000.0)
    clock.start()
    clock.allow_for(2)
    assert 2900.0 < armed_seconds() <= 3000.0


def test_without_a_limit_batches_that_were_kept_arm_nothing(clock: BatchClock) -> None:
    clock.start()
    clock.allow_for(3)
    assert armed_seconds() == 0
