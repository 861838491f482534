# SPDX-License-Identifier: Apache-2.0
import pytest

from updraft_server.pool.worker_starts import MAX_FAILURES, MAX_RETRY_SECONDS, StartPace


def test_starts_that_succeed_do_not_wait() -> None:
    pace = StartPace(workers=2)
    assert [pace.next_start_after(0.0) for _ in range(24)] == [0.0] * 24


def test_more_starts_in_a_second_than_a_pool_can_need_wait_for_its_end() -> None:
    pace = StartPace(workers=2)
    for number in range(24):
        pace.next_start_after(number / 100)
    assert pace.next_start_after(0.3) == pytest.approx(0.7)
    assert pace.next_start_after(5.0) == 0.0


def test_starts_that_fail_wait_longer_each_time_until_one_succeeds() -> None:
    pace = StartPace(workers=2)
    delays = []
    for _ in range(8):
        pace.failed()
        delays.append(pace.next_start_after(100.0))
    assert delays == sorted(delays)
    assert 0 < delays[0] < delays[1] < delays[-1] == MAX_RETRY_SECONDS
    pace.succeeded()
    assert pace.next_start_after(200.0) == 0.0


def test_a_pool_that_starts_gives_up_after_several_failures_in_a_row() -> None:
    pace = StartPace(workers=2)
    for _ in range(MAX_FAILURES - 1):
        pace.failed()
    assert not pace.is_hopeless
    pace.failed()
    assert pace.is_hopeless
