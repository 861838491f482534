# SPDX-License-Identifier: Apache-2.0
"""Simulated client's exchange, which combines the models of `client/` as `ExchangeCore` and `CallCore` do."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tests.simulation.client.recovery import (
    Again,
    Failure,
    GiveUp,
    Kind,
    Origin,
    Progress,
    WithAnotherToken,
)
from tests.simulation.client.replicas import Departure, Place
from tests.simulation.client.reply_protocol import Event, ReplyProtocol
from tests.simulation.client.request_log import Batch, MalformedReplyError, Replay, RequestLog
from tests.simulation.messages import Admitted, Answer, Credit, Finish, Open, Refused, Schema, Sent, Work
from tests.simulation.network import Stream

if TYPE_CHECKING:
    from tests.simulation.executor import Executor

_BYTES_BEFORE_ADMISSION = 64 << 10
_MALFORMED = Failure(Kind.PROTOCOL, Origin.CLIENT)
_BROKEN = Failure(Kind.WORKER, Origin.CONNECTION)
_REFUSED = Failure(Kind.POOL_UNAVAILABLE, Origin.CONNECTION, is_refused_connection=True)
_NO_ANSWER = Failure(Kind.POOL_UNAVAILABLE, Origin.CONNECTION)


class Phase(enum.Enum):
    """Phase of an exchange."""

    BACKING_OFF = "backing off"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class Exchange:
    """Exchange of one task, over all its calls."""

    def __init__(
        self, executor: Executor, name: str, command: Open, replay: Replay, changed: Callable[[], None]
    ) -> None:
        options = executor.options
        self.name = name
        self.phase = Phase.BACKING_OFF
        self.failure: Failure | None = None
        self.calls = 0
        self.log = RequestLog(options.window_batches, options.window_bytes, options.replay_bytes, replay)
        self._executor = executor
        self._world = executor.world
        self._command = command
        self._changed = changed
        self.siblings: Sequence[Exchange] = ()
        """All exchanges of the task."""
        self._left: set[int] = set()
        """Addresses of pods that refused or drained while this exchange called them."""
        self._works: dict[int, Work] = {}
        self._batches: dict[int, Batch] = {}
        self._recovery = executor.new_recovery()
        self._replies: deque[Answer] = deque()
        self._protocol = ReplyProtocol()
        self._stream: Stream | None = None
        self._place: Place | None = None
        self._address = 0
        self._base = 0
        self._sent_rows = 0
        self._early_bytes = 0
        self._is_open = self._is_admitted = self._has_handed_over = self._has_finished = False
        self._is_connected = self._is_whole = self._work_done = False
        self._opened_nanos = 0
        self._token_refused = False
        self._departure = Departure.LOST
        self._is_refusable = False
        self._sending_finished = False

    # The task's side.

    def add(self, batch: Batch, work: Work) -> None:
        """Accept a batch from the task."""
        self.log.add(batch)
        self._works[self.log.sent] = work
        self._advance()

    def finish_sending(self) -> None:
        """Record that the task has handed over its last batch. Idempotent."""
        if not self._sending_finished:
            self._sending_finished = True
            self._advance()

    def take(self) -> Answer | None:
        """Return the next result, or None if no result has arrived."""
        if not self._replies or self.phase is Phase.FAILED:
            return None
        self.log.result_taken()
        return self._replies.popleft()

    def close(self) -> None:
        """Release the call and its place."""
        if self._stream is not None:
            self._stream.cancel()
        if self._place is not None:
            self._place.release()
            self._place = None
        if self.phase in (Phase.BACKING_OFF, Phase.RUNNING):
            self.phase = Phase.FAILED

    # Calls.

    def start_call(self) -> None:
        """Start a call, which replaces the lost call if there was one."""
        if self.phase is not Phase.BACKING_OFF:
            return
        executor, nanos = self._executor, self._world.nanos
        if self._stream is not None:
            self._stream.cancel()
        if self._place is not None:
            self._place.record_departure(self._departure, nanos)
            self._place.release()
            self._place = None
        if self._token_refused and not executor.renew_token():
            self._fail(Failure(Kind.UNAUTHENTICATED, Origin.POOL))
            return
        self._token_refused = False
        self.calls += 1
        executor.cluster.calls += 1
        self.phase = Phase.RUNNING
        task = self._command.task
        addresses = executor.addresses()
        if not addresses:
            self._begin()
            self._world.later(0.001, self._unless_replaced(lambda: self._lose(_NO_ANSWER)))
            return
        name = f"{task.application_id}/{task.stage_id}/{task.task_attempt_id}"
        self._place = executor.replicas.choose(addresses, name, nanos)
        self._begin()
        self._address = self._place.address
        self._executor.checker.calls(self.name, self._address, self._siblings_elsewhere())
        self._world.note(self.name, "calls", self._address)
        self._stream = stream = Stream(self._world, f"{self.name}#{self.calls}", executor.latency_seconds)
        stream.on_reply = lambda message: self._on_reply(stream, message)
        stream.on_broken = lambda: self._on_broken(stream)
        if not executor.may_connect(self._address):
            self._world.later(0.001, self._unless_replaced(lambda: self._lose(_REFUSED)))
            return
        self._world.later(
            self._world.seconds(executor.latency_seconds), self._unless_replaced(lambda: self._connect(stream))
        )

    def _siblings_elsewhere(self) -> list[int]:
        """Return the addresses of other pods that have calls of the task and would accept this call too."""
        running = {other._address for other in self.siblings if other is not self and other.phase is Phase.RUNNING}
        left = {address for exchange in self.siblings for address in exchange._left}
        cluster = self._executor.cluster
        return [address for address in sorted(running - left - {self._address}) if cluster.is_ready_at(address)]

    def _begin(self) -> None:
        log = self.log
        self._base = log.answered if log.one_to_one else 0
        self._sent_rows = self._early_bytes = 0
        self._is_open = self._is_admitted = self._has_handed_over = self._has_finished = False
        self._is_connected = self._is_whole = self._work_done = False
        has_alternatives = self._place is not None and self._place.has_alternatives
        self._is_refusable = has_alternatives and self._recovery.may_try_elsewhere
        self._protocol = ReplyProtocol()
        log.restart()

    def _unless_replaced(self, action: Callable[[], None]) -> Callable[[], None]:
        call = self.calls

        def act() -> None:
            if self.calls == call and self.phase is Phase.RUNNING:
                action()

        return act

    def _connect(self, stream: Stream) -> None:
        executor = self._executor
        server = executor.cluster.server_at(self._address, executor)
        if server is None:
            # A lost node does not answer; a restarting process refuses the connection.
            if executor.cluster.is_silent(self._address):
                rest = executor.options.timeouts.connect_milliseconds / 1000
                self._world.later(rest, self._unless_replaced(lambda: self._lose(_NO_ANSWER)))
            else:
                executor.connection_failed(self._address)
                self._lose(_REFUSED)
            return
        executor.connected(self._address)
        self._is_connected = True
        self._is_open = True
        self._opened_nanos = self._world.nanos
        self._early_bytes = self._command.held_bytes
        command = self._command._replace(token=executor.token, refuse_if_busy=self._is_refusable)
        server.accept(stream, command)
        self._advance()

    def _advance(self) -> None:
        """Send every message that is due."""
        stream, log = self._stream, self.log
        if self.phase is not Phase.RUNNING or not self._is_open or stream is None:
            return
        while not self._has_finished and (batch := log.untransmitted()) is not None:
            if not self._is_admitted and not (
                log.replayable and self._early_bytes + batch.body_bytes <= _BYTES_BEFORE_ADMISSION
            ):
                return
            self._early_bytes += batch.body_bytes
            self._has_handed_over = True
            log.transmit()
            self._sent_rows += batch.rows
            stream.send(Sent(log.transmitted - self._base, batch, self._works[log.transmitted]))
        if self._sending_finished and not self._has_finished and log.untransmitted() is None:
            self._has_finished = self._has_handed_over = True
            stream.send(Finish(log.transmitted - self._base, self._sent_rows))

    # The pool's side.

    def _on_reply(self, stream: Stream, message: Any) -> None:
        if stream is not self._stream or self.phase is not Phase.RUNNING:
            return
        try:
            self._accept(message)
        except MalformedReplyError as error:
            self._world.note(self.name, "malformed:", error)
            stream.cancel()
            self._fail(_MALFORMED)
        self._advance()
        self._changed()

    def _accept(self, message: Any) -> None:
        protocol, log = self._protocol, self.log
        match message:
            case Admitted():
                protocol.accept(Event.ADMITTED)
                self._is_admitted = True
                for exchange in self.siblings:
                    exchange._left.discard(self._address)
            case Schema():
                protocol.accept(Event.SCHEMA)
                self._work_done = True
            case Credit(consumed):
                protocol.accept(None, consumed=consumed)
                self._consumed(consumed)
            case Answer(sequence, rows, consumed, _) as answer:
                protocol.accept(Event.BATCH, sequence=sequence, rows=rows, consumed=consumed)
                self._work_done = True
                self._consumed(consumed)
                if log.one_to_one:
                    log.answered_next(rows)
                    self._recovery.progressed()
                self._replies.append(answer)
            case Finish(batches, rows):
                protocol.accept(Event.FINISHED, sequence=batches, rows=rows)
                if log.one_to_one and not (self._sending_finished and log.answered == log.sent):
                    raise MalformedReplyError("the pool finished early")
                self._is_whole = True
                self.phase = Phase.FINISHED
            case Refused(failure, hint):
                if failure.is_in_band:
                    protocol.accept(Event.FAILED)
                self._lose(failure, hint)

    def _consumed(self, consumed: int) -> None:
        if consumed > self.log.transmitted - self._base:
            raise MalformedReplyError("consumed more than was sent")
        if consumed:
            self.log.consumed_through(self._base + consumed)

    def _on_broken(self, stream: Stream) -> None:
        if stream is self._stream and self.phase is Phase.RUNNING:
            self._lose(_BROKEN)

    def _lose(self, failure: Failure, hint: int | None = None) -> None:
        """Schedule a call that replaces the lost call, or fail."""
        world, log = self._world, self.log
        if self._place is not None:
            self._place.ended()
        self._departure = self._why(failure)
        lost_on_the_wire = failure.origin is Origin.CONNECTION and self._is_connected and self._has_handed_over
        if self._departure is Departure.UNAVAILABLE:
            self._left.add(self._address)
        if self._is_open and self._is_connected:
            self._recovery.waited(world.nanos - self._opened_nanos)
        progress = Progress(
            self._work_done or lost_on_the_wire,
            self._base,
            self._started_batch(),
            log.replayable,
            self._executor.reach(is_connected=self._is_connected),
        )
        decision = self._recovery.decide(failure, progress, hint, world.nanos)
        if not isinstance(decision, GiveUp) and not log.one_to_one:
            self._replies.clear()
        world.note(self.name, "lost", failure.kind.value, failure.origin.value, type(decision).__name__)
        match decision:
            case Again(pause, is_retry):
                self.phase = Phase.BACKING_OFF
                if is_retry:
                    self._executor.checker.retries(self._executor.name, world.nanos + pause * 1_000_000)
                world.later(pause / 1000, self._again())
            case WithAnotherToken():
                self.phase = Phase.BACKING_OFF
                self._token_refused = True
                world.later(0.0, self._again())
            case GiveUp():
                self._fail(failure)
        self._changed()

    def _why(self, failure: Failure) -> Departure:
        if failure.origin is Origin.CONNECTION:
            return Departure.LOST if self._is_connected else Departure.UNAVAILABLE
        if failure.kind is Kind.POOL_UNAVAILABLE:
            return Departure.UNAVAILABLE
        return Departure.BUSY if failure.kind is Kind.POOL_BUSY else Departure.LOST

    def _again(self) -> Callable[[], None]:
        call = self.calls
        return lambda: self.start_call() if self.calls == call else None

    def _started_batch(self) -> int:
        log, consumed = self.log, self._protocol.consumed
        if not log.one_to_one:
            return consumed
        is_sign = consumed > 0 or log.answered > self._base
        return log.answered + 1 if is_sign and log.answered < log.sent else 0

    def _fail(self, failure: Failure) -> None:
        self.phase = Phase.FAILED
        self.failure = failure
        self._changed()
