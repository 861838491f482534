# SPDX-License-Identifier: Apache-2.0
import signal

import pytest

from updraft_server.front.relay.batch_limits import BatchTimeout
from updraft_server.pool.worker_events import WorkerDeath

ALARM = WorkerDeath(-signal.SIGALRM)


@pytest.mark.parametrize(
    ("pool_seconds", "idle_milliseconds", "seconds", "setting"),
    [
        (0.0, 0, 0.0, "--batch-timeout-seconds"),
        (2.0, 0, 2.0, "--batch-timeout-seconds"),
        (2.0, 3000, 2.0, "--batch-timeout-seconds"),
        (2.0, 500, 0.5, "idle_timeout_milliseconds"),
        (0.0, 500, 0.5, "idle_timeout_milliseconds"),
        (2.0, -1, 2.0, "--batch-timeout-seconds"),
    ],
)
def test_the_smaller_limit_holds_and_is_named(
    pool_seconds: float, idle_milliseconds: int, seconds: float, setting: str
) -> None:
    timeout = BatchTimeout.effective(pool_seconds, idle_milliseconds)
    assert (timeout.seconds, timeout.batch_seconds) == (seconds, pool_seconds)
    assert setting in timeout.setting


def test_an_idle_limit_that_is_smaller_is_the_one_that_is_named() -> None:
    timeout = BatchTimeout.effective(60.0, 1500)
    assert (timeout.seconds, timeout.batch_seconds, timeout.idle_seconds) == (1.5, 60.0, 1.5)
    assert "neither accepted nor returned a batch for more than 1.5 seconds" in timeout.error("the function f").message
    assert BatchTimeout.effective(1.0, 1500).seconds == 1.0


def test_only_an_alarm_under_a_limit_is_a_timeout() -> None:
    assert BatchTimeout(1.0, "x").explains(ALARM)
    assert not BatchTimeout(0.0, "x").explains(ALARM)
    assert not BatchTimeout(1.0, "x").explains(WorkerDeath(-signal.SIGKILL))


def test_the_error_says_how_long_and_what_to_change() -> None:
    message = BatchTimeout.effective(1.5).error("the function f").message
    assert "the function f worked for more than 1.5 seconds on one batch" in message
    assert "--batch-timeout-seconds of the pool" in message
