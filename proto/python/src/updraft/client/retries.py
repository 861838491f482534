# SPDX-License-Identifier: Apache-2.0
"""Policy that decides, after a failed exchange, whether and when to retry. It uses no transport or clock."""

import random
from dataclasses import dataclass

from updraft.client.called_function import CalledFunction
from updraft.client.exchange import Exchange
from updraft.errors import (
    DeadlineError,
    FunctionLoadError,
    FunctionNotFoundError,
    InternalError,
    PermissionDeniedError,
    PoolFullError,
    PoolUnavailableError,
    ProtocolError,
    UnauthenticatedError,
    UpdraftError,
    UserError,
    WorkerError,
)

RETRY_AFTER = "retry-after-ms"
"""Trailer with the pool's hint."""

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 4.0
_MAX_REPLAYS_IN_A_ROW = 8
_ERROR_OF_STATUS: dict[str, type[UpdraftError]] = {
    error.code: error
    for error in (
        DeadlineError,
        FunctionLoadError,
        FunctionNotFoundError,
        PermissionDeniedError,
        PoolFullError,
        PoolUnavailableError,
        ProtocolError,
        UnauthenticatedError,
        UserError,
        WorkerError,
    )
}


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of an exchange: its error, and whether the pool sent the error or the connection broke."""

    error: UpdraftError
    is_from_pool: bool


def failure_of(in_band: UpdraftError | None, code: str, details: str, hint_milliseconds: int) -> Failure:
    """Return the failure of a call that ended with the gRPC status `code`, given by name."""
    if in_band is not None:
        in_band.retry_after_milliseconds = hint_milliseconds
        return Failure(in_band, is_from_pool=True)
    kind = _ERROR_OF_STATUS.get(code)
    message = details if kind is not None else f"{code}: {details}"
    error = (kind or InternalError)(message, retry_after_milliseconds=hint_milliseconds)
    # Without an in-band error, a draining pool looks like an unreachable one. A retry helps in both cases.
    return Failure(error, is_from_pool=code != "UNAVAILABLE")


class Retries:
    """Retries of one call."""

    def __init__(
        self, endpoint: str, *, acquire_timeout_seconds: float, connect_timeout_seconds: float, now: float
    ) -> None:
        self._endpoint = endpoint
        self._acquire_timeout_seconds = acquire_timeout_seconds
        self._connect_timeout_seconds = connect_timeout_seconds
        self._waiting_since = now
        self._tries = 0
        self._replays = 0
        self._released = 0
        self._suspect = 0

    def pause_seconds(
        self, failure: Failure, function: CalledFunction | None, exchange: Exchange | None, *, released: int, now: float
    ) -> float:
        """Return how long to wait before a retry; raise the error if a retry is unsafe or useless.

        Args:
            failure: Failure of the last attempt.
            function: Function that is called; None for a request for its description, which is always safe to repeat.
            exchange: Exchange that failed; None if `function` is None.
            released: Number of batches that need not be sent again.
            now: Time in seconds, by any clock.
        """
        error = failure.error
        is_refusal = isinstance(error, PoolFullError | PoolUnavailableError)
        untouched = exchange is None or (
            not exchange.has_started and (failure.is_from_pool or not exchange.has_sent_rows)
        )
        if is_refusal and untouched:
            return self._wait(failure, now)
        is_loss = isinstance(error, WorkerError | PoolUnavailableError)
        if is_loss and function is not None and exchange is not None and function.can_be_repeated:
            return self._replay(failure, exchange, released=released, now=now)
        raise error

    def _wait(self, failure: Failure, now: float) -> float:
        limit = self._acquire_timeout_seconds if failure.is_from_pool else self._connect_timeout_seconds
        rest = limit - (now - self._waiting_since)
        error = failure.error
        if rest <= 0:
            what = "accepted no call" if failure.is_from_pool else "cannot be reached"
            setting = "acquire_timeout_seconds" if failure.is_from_pool else "connect_timeout_seconds"
            error.message = f"the pool at {self._endpoint} {what} within {limit:g} seconds ({setting}): {error.message}"
            error.args = (error.message,)
            raise error
        self._tries += 1
        grown = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(self._tries, 10))
        least = max(error.retry_after_milliseconds / 1000, grown / 2)
        return min(rest, random.uniform(least, least + grown))  # noqa: S311 - jitter

    def _replay(self, failure: Failure, exchange: Exchange, *, released: int, now: float) -> float:
        if released > self._released:
            self._released, self._replays = released, 0
        drains = isinstance(failure.error, PoolUnavailableError) and failure.is_from_pool
        blamed = 0 if drains else exchange.blamed_batch()
        error = failure.error
        if (blamed and blamed == self._suspect) or self._replays >= _MAX_REPLAYS_IN_A_ROW:
            what = f"batch {blamed} killed two workers" if blamed else f"gave up after {self._replays} replays"
            error.message = f"{what}: {error.message}"
            error.args = (error.message,)
            raise error
        self._suspect = blamed or self._suspect
        self._replays += 1
        self._tries, self._waiting_since = 0, now
        return 0.0
