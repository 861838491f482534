# SPDX-License-Identifier: Apache-2.0
"""Retries of failed calls, and their time limit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from updraft.client.called_function import CalledFunction
from updraft.client.retries import Failure, Retries, failure_of
from updraft.errors import PoolFullError, PoolUnavailableError, UpdraftError, UserError, WorkerError
from updraft.v1.control_pb2 import FunctionDescription, FunctionKind

_REPEATABLE = CalledFunction(FunctionDescription(name="f", kind=FunctionKind.FUNCTION_KIND_SCALAR, deterministic=True))
_ONCE = CalledFunction(FunctionDescription(name="f", kind=FunctionKind.FUNCTION_KIND_SCALAR))


@pytest.fixture
def retries() -> Retries:
    return Retries("grpc://pool:1", acquire_timeout_seconds=60, connect_timeout_seconds=5, now=0)


def _exchange(*, sent: bool = False, started: bool = False, blamed: int = 0) -> Any:
    """Return the state of an exchange, as the decision reads it."""
    return SimpleNamespace(has_sent_rows=sent, has_started=started, blamed_batch=lambda: blamed)


def _refused(*, hint: int = 0) -> Failure:
    return Failure(PoolFullError("the queue is full", retry_after_milliseconds=hint), is_from_pool=True)


def _lost() -> Failure:
    return Failure(PoolUnavailableError("the connection broke"), is_from_pool=False)


def _pause(
    retries: Retries, failure: Failure, function: CalledFunction, exchange: Any, *, released: int = 0, now: float = 0
) -> float:
    return retries.pause_seconds(failure, function, exchange, released=released, now=now)


def test_a_full_pool_is_asked_again_after_its_hint_until_the_time_is_over(retries: Retries) -> None:
    assert _pause(retries, _refused(hint=700), _ONCE, _exchange(sent=True)) >= 0.7
    assert 0 < _pause(retries, _refused(), _ONCE, _exchange(), now=59.9) <= 0.11
    with pytest.raises(PoolFullError, match=r"pool at grpc://pool:1 accepted no call within 60 seconds"):
        _pause(retries, _refused(), _ONCE, _exchange(), now=60)


def test_pauses_grow(retries: Retries) -> None:
    pauses = [_pause(retries, _refused(), _ONCE, _exchange()) for _ in range(10)]
    assert pauses[0] < 0.2
    assert pauses[-1] >= 2


def test_a_connection_that_broke_before_any_rows_were_sent_is_tried_again(retries: Retries) -> None:
    assert _pause(retries, _lost(), _ONCE, _exchange()) > 0
    with pytest.raises(PoolUnavailableError, match="cannot be reached within 5 seconds"):
        _pause(retries, _lost(), _ONCE, _exchange(), now=5)


def test_rows_that_a_function_may_have_seen_are_sent_again_only_if_that_is_safe(retries: Retries) -> None:
    assert _pause(retries, _lost(), _REPEATABLE, _exchange(sent=True)) == 0
    with pytest.raises(PoolUnavailableError, match="the connection broke"):
        _pause(retries, _lost(), _ONCE, _exchange(sent=True))


def test_a_batch_is_blamed_for_two_workers_and_not_for_one(retries: Retries) -> None:
    died = Failure(WorkerError("it was killed"), is_from_pool=True)
    for batch in (1, 2, 3):
        assert _pause(retries, died, _REPEATABLE, _exchange(started=True, blamed=batch), released=batch) == 0
    with pytest.raises(WorkerError, match="batch 3 killed two workers: it was killed"):
        _pause(retries, died, _REPEATABLE, _exchange(started=True, blamed=3), released=3)


def test_a_function_that_loses_worker_after_worker_without_progress_is_given_up(retries: Retries) -> None:
    drains = Failure(PoolUnavailableError("the pool drains"), is_from_pool=True)
    for _ in range(8):
        assert _pause(retries, drains, _REPEATABLE, _exchange(started=True, blamed=1)) == 0
    with pytest.raises(PoolUnavailableError, match="gave up after 8 replays: the pool drains"):
        _pause(retries, drains, _REPEATABLE, _exchange(started=True, blamed=1))


def test_the_functions_own_exception_is_final(retries: Retries) -> None:
    with pytest.raises(UserError):
        _pause(retries, Failure(UserError("it raised"), is_from_pool=True), _REPEATABLE, _exchange(started=True))


@pytest.mark.parametrize(
    ("code", "kind"),
    [("NOT_FOUND", "FunctionNotFoundError"), ("UNAVAILABLE", "PoolUnavailableError"), ("DATA_LOSS", "InternalError")],
)
def test_a_status_alone_becomes_an_error(code: str, kind: str) -> None:
    failure = failure_of(None, code, "why", 5)
    assert type(failure.error).__name__ == kind
    assert "why" in failure.error.message
    assert failure.error.retry_after_milliseconds == 5


def test_the_error_in_band_has_precedence() -> None:
    error: UpdraftError = UserError("the message", traceback="its lines")
    assert failure_of(error, "UNKNOWN", "the message", 0).error is error
