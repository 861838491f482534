# SPDX-License-Identifier: Apache-2.0
"""A child counts as stuck after a number of the supervisor's looks, without a clock."""

from collections.abc import Iterator

import pytest

from updraft.service.heartbeat import LOADING_TURNS, SILENT_TURNS, Heartbeat, HeartbeatMonitor


@pytest.fixture
def monitor() -> Iterator[HeartbeatMonitor]:
    watching = HeartbeatMonitor()
    yield watching
    watching.started()
    watching.close()


def looks_until_stuck(monitor: HeartbeatMonitor) -> int:
    looks = 1
    while not monitor.is_stuck():
        looks += 1
    return looks


def test_a_child_that_falls_silent_is_stuck_after_a_few_turns(monitor: HeartbeatMonitor) -> None:
    heartbeat = Heartbeat(monitor.writing)
    for _ in range(3 * SILENT_TURNS):
        heartbeat.beat()
        assert not monitor.is_stuck()
    assert looks_until_stuck(monitor) == SILENT_TURNS


def test_a_child_that_still_loads_has_longer(monitor: HeartbeatMonitor) -> None:
    assert looks_until_stuck(monitor) == LOADING_TURNS


def test_a_beat_never_waits_for_a_supervisor_that_does_not_look(monitor: HeartbeatMonitor) -> None:
    heartbeat = Heartbeat(monitor.writing)
    for _ in range(100_000):
        heartbeat.beat()
    assert not monitor.is_stuck()


def test_a_beat_after_the_supervisors_end_is_no_error() -> None:
    monitor = HeartbeatMonitor()
    monitor.close()
    Heartbeat(monitor.writing).beat()
    monitor.started()
