# SPDX-License-Identifier: Apache-2.0
"""Hang detection for model processes: the test plays the clock, the process and the zygote that looks."""

import faulthandler
import os
import time
from collections.abc import Iterator

import pytest

from updraft_server.worker.model.watchdog import TURN_SECONDS, Watchdog

LOOKS = 3


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made.monotonic)
    return made


@pytest.fixture
def watchdog(clock: Clock) -> Iterator[Watchdog]:
    made = Watchdog()
    yield made
    made.close()


def looked(watchdog: Watchdog) -> list[str]:
    return [watchdog.broken() for _ in range(LOOKS)]


def test_one_that_still_loads_is_not_late(watchdog: Watchdog, clock: Clock) -> None:
    clock.seconds += 10 * TURN_SECONDS
    assert looked(watchdog) == [""] * LOOKS


def test_a_call_may_take_its_time_and_no_more(watchdog: Watchdog, clock: Clock) -> None:
    watchdog.began_call(100.0)
    clock.seconds += 99.0
    assert looked(watchdog) == [""] * LOOKS
    clock.seconds += 2.0
    assert looked(watchdog)[-1].startswith("worked for more than 100 seconds on one batch")


def test_a_call_without_a_limit_may_take_for_ever(watchdog: Watchdog, clock: Clock) -> None:
    watchdog.began_call(0.0)
    clock.seconds += 1e9
    assert looked(watchdog) == [""] * LOOKS


def test_one_that_stands_still_between_two_calls_is_late_too(watchdog: Watchdog, clock: Clock) -> None:
    watchdog.began_call(0.0)
    watchdog.turned()
    clock.seconds += TURN_SECONDS + 1
    assert looked(watchdog)[-1].startswith("made no progress for more than 30 seconds between two batches")


def test_one_that_goes_on_after_the_machine_stood_still_is_not_late(watchdog: Watchdog, clock: Clock) -> None:
    for _ in range(LOOKS):
        clock.seconds += 1e6
        assert not watchdog.broken()
        watchdog.turned()


def test_one_that_hangs_up_has_a_moment_to_end(watchdog: Watchdog) -> None:
    watchdog.began_call(0.0)
    watchdog.hung_up()
    *before, last = looked(watchdog)
    assert before == [""] * (LOOKS - 1)
    assert "closed its connection to the pool" in last


def test_the_zygote_sees_what_the_process_writes_and_no_later_fork_has_it(watchdog: Watchdog, clock: Clock) -> None:
    if not (pid := os.fork()):
        watchdog.began_call(1.0)
        os._exit(0)
    os.waitpid(pid, 0)
    clock.seconds += 2.0
    assert looked(watchdog)[-1]
    watchdog.hide_from_forks()
    if not (pid := os.fork()):
        # Unmapped in the child, so the access raises SIGSEGV, of which nothing is printed.
        faulthandler.disable()
        watchdog.turned()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
