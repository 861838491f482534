# SPDX-License-Identifier: Apache-2.0

from updraft_server.front.status.pool_metrics import HealingTime


def observed(*changes: tuple[float, int]) -> list[float]:
    seen: list[float] = []
    now = [0.0]
    healing = HealingTime(2, seen.append, lambda: now[0])
    for at, warm in changes:
        now[0] = at
        healing.workers_are(warm)
    return seen


def test_the_time_runs_from_the_first_loss_until_all_are_there() -> None:
    assert observed((0, 2), (10, 1), (10.5, 0), (11, 1), (12, 2)) == [2.0]


def test_a_start_is_not_healing() -> None:
    assert observed((0, 0), (5, 1), (9, 2)) == []


def test_extra_workers_change_nothing() -> None:
    assert observed((0, 2), (1, 3), (2, 2)) == []


def test_each_loss_is_observed() -> None:
    assert observed((0, 2), (1, 1), (2, 2), (3, 0), (7, 2)) == [1.0, 4.0]
