# SPDX-License-Identifier: Apache-2.0
"""What a front is doing: the exchanges that are open and the last that failed.

`front.exchange` records beginnings and ends, and the relay counts in each exchange's own `Transfer`. Metrics and the
status page read both when somebody asks, so that a batch pays for neither.
"""

import enum
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from updraft.errors import UpdraftError
from updraft.service.log_lines import shortened
from updraft.service.spans import UNRECORDED, Span
from updraft_server.front.relay.transfer import Transfer

KEPT_FAILURES = 20


class ExchangePhase(enum.Enum):
    """REQUESTING -> PREPARING -> WAITING -> RUNNING; left at any time by its end."""

    REQUESTING = "requesting"  # the request has not arrived in full
    PREPARING = "preparing"  # the client uploads a large payload and missing artifacts
    WAITING = "waiting"  # for a worker
    RUNNING = "running"


@dataclass(eq=False, slots=True)
class OpenExchange:
    """An exchange, from its call to its status."""

    phase: ExchangePhase = ExchangePhase.REQUESTING
    identity: Mapping[str, str] = field(default_factory=dict)
    """Function and task, as every log line of the exchange names them."""
    transfer: Transfer = field(default_factory=Transfer)
    span: Span = UNRECORDED
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """For how long it has been open."""
        return time.monotonic() - self.began


def utc_now() -> str:
    """This second, as ISO 8601 writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Failure:
    """An exchange that ended with an error: the first line of what its client was told."""

    at: str
    """UTC, as ISO 8601 writes it."""
    outcome: str
    message: str
    identity: Mapping[str, str]


class Activity:
    """The exchanges of one front. Changed from its event loop; may be read from any thread."""

    def __init__(self) -> None:
        self.ended = 0
        self.failures: deque[Failure] = deque(maxlen=KEPT_FAILURES)
        self._lock = threading.Lock()
        self._open: set[OpenExchange] = set()
        self._ended_transfer = Transfer()

    @property
    def open(self) -> tuple[OpenExchange, ...]:
        """Exchanges that have not ended, the oldest first."""
        with self._lock:
            return tuple(sorted(self._open, key=lambda exchange: exchange.began))

    def transferred(self) -> Transfer:
        """What has passed since the start. It never decreases: an exchange that ends counts once, here or there."""
        total = Transfer()
        with self._lock:
            for transfer in (self._ended_transfer, *(exchange.transfer for exchange in self._open)):
                total.add(transfer)
        return total

    def begin(self) -> OpenExchange:
        """An exchange has come."""
        exchange = OpenExchange()
        with self._lock:
            self._open.add(exchange)
        return exchange

    def end(self, exchange: OpenExchange) -> None:
        """It has ended, however it did."""
        with self._lock:
            self._open.discard(exchange)
            self._ended_transfer.add(exchange.transfer)
            self.ended += 1

    def failed(self, exchange: OpenExchange, error: UpdraftError) -> None:
        """It ends with an error."""
        self.failures.append(Failure(utc_now(), type(error).__name__, shortened(error.first_line()), exchange.identity))
