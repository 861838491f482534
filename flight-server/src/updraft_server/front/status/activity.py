# SPDX-License-Identifier: Apache-2.0
"""Activity of a front: the open exchanges and the last failures.

`front.exchange` records when exchanges begin and end, and the relay counts messages in each exchange's own `Transfer`.
Metrics and the status page read exchanges and counts only on request, so they add no cost per batch.
"""

import enum
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from updraft.errors import UpdraftError
from updraft.service.spans import UNRECORDED, Span
from updraft.service.telemetry import shortened
from updraft_server.front.relay.transfer import Transfer
from updraft_server.pool.worker_events import Reader

KEPT_FAILURES = 20


class ExchangePhase(enum.Enum):
    """Phase of an exchange: REQUESTING -> PREPARING -> WAITING -> RUNNING. It may end in any phase."""

    REQUESTING = "requesting"  # the request has not arrived in full
    PREPARING = "preparing"  # the client uploads a large payload and missing artifacts
    WAITING = "waiting"  # the exchange waits for a worker
    RUNNING = "running"  # the exchange has a worker


@dataclass(eq=False, slots=True)
class OpenExchange:
    """Exchange that is open, from the start of its call until the front sends its status."""

    phase: ExchangePhase = ExchangePhase.REQUESTING
    identity: Mapping[str, str] = field(default_factory=dict)
    """Function and task, as named in every log line of the exchange."""
    transfer: Transfer = field(default_factory=Transfer)
    readers: frozenset[Reader] = frozenset()
    """Callers who may read its function's output and profile it."""
    worker: str = ""
    """Id of its worker; empty while it has none."""
    span: Span = UNRECORDED
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds since the exchange began."""
        return time.monotonic() - self.began


def utc_now() -> str:
    """Return the current UTC time in ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Failure:
    """Exchange that ended with an error; `message` is the first line of its client's error."""

    at: str
    """UTC time in ISO 8601."""
    outcome: str
    message: str
    identity: Mapping[str, str]


class Activity:
    """Exchanges of one front. Only its event loop changes them; any thread may read them."""

    def __init__(self) -> None:
        self.ended = 0
        self.failures: deque[Failure] = deque(maxlen=KEPT_FAILURES)
        self._lock = threading.Lock()
        self._open: set[OpenExchange] = set()
        self._ended_transfer = Transfer()

    @property
    def open(self) -> tuple[OpenExchange, ...]:
        """Open exchanges, the oldest first."""
        with self._lock:
            return tuple(sorted(self._open, key=lambda exchange: exchange.began))

    def transferred(self) -> Transfer:
        """Return the total of all open and ended exchanges since the start, which never decreases."""
        total = Transfer()
        with self._lock:
            for transfer in (self._ended_transfer, *(exchange.transfer for exchange in self._open)):
                total.add(transfer)
        return total

    def begin(self) -> OpenExchange:
        """Record a new exchange."""
        exchange = OpenExchange()
        with self._lock:
            self._open.add(exchange)
        return exchange

    def end(self, exchange: OpenExchange) -> None:
        """Record the end of an exchange, failed or not."""
        with self._lock:
            self._open.discard(exchange)
            self._ended_transfer.add(exchange.transfer)
            self.ended += 1

    def failed(self, exchange: OpenExchange, error: UpdraftError) -> None:
        """Record the error with which an exchange ends."""
        self.failures.append(Failure(utc_now(), type(error).__name__, shortened(error.first_line()), exchange.identity))
