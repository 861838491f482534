# SPDX-License-Identifier: Apache-2.0
"""Simulated task that writes one file, and combines the models of `client/` as `FileCore` and `CallCore` do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tests.simulation.client.credit_window import CreditWindow
from tests.simulation.client.recovery import (
    Again,
    Failure,
    GiveUp,
    Kind,
    Origin,
    Progress,
    Reach,
    Recovery,
    Timeouts,
)
from tests.simulation.client.request_log import Batch, MalformedReplyError
from tests.simulation.client.retry_budget import RetryBudget
from tests.simulation.exchange import Phase
from tests.simulation.messages import Refused
from tests.simulation.network import Stream
from tests.simulation.writer import OpenWrite, Writer, batch_header, ids_bytes, source_of
from updraft.flight_data import join_flight_data, split_flight_data
from updraft.v1.exchange_pb2 import Finish, KeepAlive
from updraft.v1.write_pb2 import Abort, Ask, Receipt, WriteReplyMetadata, WriteRequestMetadata

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

_NOTHING = memoryview(b"")
_BROKEN = Failure(Kind.WORKER, Origin.CONNECTION)
_REFUSED = Failure(Kind.POOL_UNAVAILABLE, Origin.CONNECTION, is_refused_connection=True)
_MALFORMED = Failure(Kind.PROTOCOL, Origin.CLIENT)
_WINDOW_BYTES = 256 << 10
_KEEPALIVE_SECONDS = 30.0


class FileTask:
    """One attempt of a task to write a file."""

    def __init__(
        self, cluster: Cluster, command: OpenWrite, batches: Sequence[int], timeouts: Timeouts, budget: RetryBudget
    ) -> None:
        self.phase = Phase.BACKING_OFF
        self.failure: Failure | None = None
        self._cluster = cluster
        self._world = cluster.world
        self._command = command
        self._batches = batches
        self._timeouts = timeouts
        self._budget = budget
        self._window = CreditWindow(_WINDOW_BYTES)
        self._recovery: Recovery | None = None
        self._stream: Stream | None = None
        self._writer: Writer | None = None
        self._calls = 0
        self._opened_nanos = self._world.nanos
        self._is_open = self._is_over = False
        self._sending_finished = False
        self._next_id = command.first_id
        self._changed = asyncio.Event()

    async def run(self, pause_seconds: float, *, gives_up: bool) -> Failure | None:
        """Write the file, with this pause before each batch; return the failure, or None."""
        self._start_call()
        try:
            for rows in self._batches:
                if pause_seconds:
                    await asyncio.sleep(pause_seconds)
                if not await self._until(lambda rows=rows: self._window.has_room(8 * rows)):  # type: ignore[misc]
                    return self.failure
                self._window.add(Batch(rows, 8 * rows))
                self._advance()
            if gives_up:
                self._abort()
                return _MALFORMED
            self._sending_finished = True
            self._advance()
            await self._until(lambda: False)
            return self.failure
        finally:
            if self._stream is not None:
                self._stream.cancel()
            self._calls += 1

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait for the condition; return False when the file has ended."""
        while self.phase in (Phase.RUNNING, Phase.BACKING_OFF):
            if condition():
                return True
            self._changed.clear()
            await self._changed.wait()
        return False

    def _abort(self) -> None:
        if self._stream is not None and self._is_open and self.phase is Phase.RUNNING:
            self._send(WriteRequestMetadata(abort=Abort(reason="the task was killed")))
            self._half_close()
        self.phase = Phase.FAILED

    def _start_call(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
        self._calls += 1
        self.phase = Phase.RUNNING
        self._is_open = self._is_over = False
        self._window.restart()
        writers = [writer for writer in self._cluster.writers if writer.is_up]
        if not writers:
            self._world.later(0.001, self._unless_replaced(lambda: self._lose(_REFUSED)))
            return
        self._writer = writer = self._world.random.choice(writers)
        name = f"{self._command.path}#{self._calls}"
        self._stream = stream = Stream(self._world, name, 0.001)
        stream.on_reply = lambda message: self._on_reply(stream, message)
        stream.on_broken = self._unless_replaced(lambda: self._lose(_BROKEN))
        writer.accept(stream, self._command)
        self._is_open = True
        self._world.later(_KEEPALIVE_SECONDS, self._unless_replaced(self._keep_alive))
        self._advance()

    def _unless_replaced(self, action: Callable[[], None]) -> Callable[[], None]:
        call = self._calls

        def act() -> None:
            if self._calls == call and self.phase is Phase.RUNNING:
                action()

        return act

    def _advance(self) -> None:
        window = self._window
        if self.phase is not Phase.RUNNING or not self._is_open or self._is_over:
            return
        while True:
            if (size := window.next_ask()) is not None:
                self._send(WriteRequestMetadata(ask=Ask(body_bytes=size)))
            elif window.has_credit:
                batch = window.send()
                body = ids_bytes(self._next_id, self._next_id + batch.rows)
                self._next_id += batch.rows
                self._send(WriteRequestMetadata(sequence=window.sent), batch_header(batch.rows), body)
            else:
                break
        if self._sending_finished and window.is_empty:
            self._is_over = True
            rows = sum(self._batches)
            self._cluster.checker.invariants.finished(self._command.path, source_of(self._command.first_id), rows)
            self._send(WriteRequestMetadata(finish=Finish(batches=window.sent, rows=window.sent_rows)))
            self._half_close()
        self._changed.set()

    def _half_close(self) -> None:
        if self._stream is not None:
            self._stream.send(None)

    def _keep_alive(self) -> None:
        if not self._is_over:
            self._send(WriteRequestMetadata(keep_alive=KeepAlive()))
        self._world.later(_KEEPALIVE_SECONDS, self._unless_replaced(self._keep_alive))

    def _send(self, metadata: WriteRequestMetadata, header: bytes = b"", body: bytes = b"") -> None:
        assert self._stream is not None
        message = join_flight_data(memoryview(header), metadata.SerializeToString(), memoryview(body))
        self._stream.send(message)

    def _on_reply(self, stream: Stream, message: Any) -> None:
        if stream is not self._stream or self.phase is not Phase.RUNNING:
            return
        match message:
            case Receipt():
                self._take_receipt(message)
            case Refused(failure, hint):
                self._lose(failure, hint)
            case _:
                reply = WriteReplyMetadata.FromString(bytes(split_flight_data(message).app_metadata))
                try:
                    self._window.take_credit(reply.credit)
                    self._window.take_stored(reply.stored)
                except MalformedReplyError:
                    self._fail(_MALFORMED)
                self._advance()
        self._changed.set()

    def _take_receipt(self, receipt: Receipt) -> None:
        window = self._window
        if not self._is_over or (receipt.batches, receipt.rows) != (window.sent, window.sent_rows):
            self._fail(_MALFORMED)
            return
        self.phase = Phase.FINISHED
        self._cluster.checker.invariants.confirmed(self._command.path)

    def _lose(self, failure: Failure, hint: int | None = None) -> None:
        now = self._world.nanos
        if self._recovery is None:
            since = now if failure.is_without_room else self._opened_nanos
            self._recovery = Recovery(self._timeouts, self._budget, since, self._world.between)
        progress = Progress(self._window.sent > 0, 0, 0, False, Reach.ANSWERED)
        decision = self._recovery.decide(failure, progress, hint, now)
        self._world.note(self._command.path, "lost", failure.kind.value, type(decision).__name__)
        match decision:
            case Again(pause, _):
                self.phase = Phase.BACKING_OFF
                self._cluster.checker.retries("the executor of files", now + pause * 1_000_000)
                call = self._calls
                self._world.later(pause / 1000, lambda: self._start_call() if self._calls == call else None)
            case GiveUp():
                self._fail(failure)
            case _:
                self._fail(failure)
        self._changed.set()

    def _fail(self, failure: Failure) -> None:
        self.phase = Phase.FAILED
        self.failure = failure
        self._changed.set()
