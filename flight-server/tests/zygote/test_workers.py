# SPDX-License-Identifier: Apache-2.0
"""Reports of worker exits to fronts."""

import math
import time

import pytest

from updraft_server.zygote.workers import WorkerEnds


@pytest.fixture
def ends() -> WorkerEnds:
    return WorkerEnds()


def told(ends: WorkerEnds, *, is_anything_left: bool) -> list[str]:
    return [end.worker for end in ends.take(is_anything_left=is_anything_left)]


def test_ends_are_told_at_once_where_nothing_is_left(ends: WorkerEnds) -> None:
    ends.add(None, "w-1", 0)
    ends.add(None, "w-2", -9)
    assert told(ends, is_anything_left=False) == ["w-1", "w-2"]
    assert not ends


def test_they_wait_while_something_is_left_but_not_for_ever(ends: WorkerEnds, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    ends.add(None, "w-1", 0)
    assert told(ends, is_anything_left=True) == []
    assert 0 < ends.wait_seconds < 1
    monkeypatch.setattr(time, "monotonic", lambda: now + 1)
    ends.add(None, "w-2", 0)
    assert ends.wait_seconds == 0
    assert told(ends, is_anything_left=True) == ["w-1"]
    assert told(ends, is_anything_left=False) == ["w-2"]


def test_the_loop_has_nothing_to_look_for_when_there_are_none(ends: WorkerEnds) -> None:
    assert ends.wait_seconds == math.inf
