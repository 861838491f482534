# SPDX-License-Identifier: Apache-2.0
"""Exchange that writes one file: it reserves bytes when the client asks, and passes batches with credit to the file.

`exchanges` opens the exchange and reports its outcome to the client. This module releases the reservations of unused
credit, however the exchange ends. For a batch that the file has taken, the file releases the reservation.
"""

import asyncio
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from updraft.batch_parts import PART_BYTES, check_batch_size
from updraft.errors import DeadlineError, ProtocolError, QuotaError
from updraft.flight_data import FlightFields
from updraft.service.exchange import Call, fail_without_finish, parse_metadata
from updraft.service.silence import Silence
from updraft.service.spans import Span
from updraft.v1.exchange_pb2 import BatchPart, Finish
from updraft.v1.write_pb2 import WriteRequestMetadata
from updraft_writer.batches import Batches
from updraft_writer.encoders.encoder import Footer
from updraft_writer.metrics import WriterMetrics
from updraft_writer.open_file import OpenFile
from updraft_writer.quota import Quota, Reservation
from updraft_writer.replies import Replies
from updraft_writer.request import WriteRequest
from updraft_writer.row_groups import batch_limit, reserved_bytes, unbacked_allowance_bytes
from updraft_writer.settings import ServeSettings

_MAX_UNANSWERED_ASKS = 16
# Most batches for which a client may have unused credit. Clients send a batch as soon as they have credit for it.
# Without this limit, credit for empty batches would take memory that the quota does not include.
_MAX_UNUSED_CREDIT = 64
# Waits for the quota get a trace span if they last at least this long. Every batch asks for the quota, but most batches
# hardly wait.
_SHORTEST_TRACED_WAIT_SECONDS = 0.01
# Longest time from credit for a batch until the batch arrives. Keepalives do not extend this time, because other files
# wait for the memory that is reserved for the batch. A client asks for credit when the batch is ready to be sent, so
# the client can send it within a minute.
STALL_TIMEOUT_SECONDS = 60.0
# If a batch comes in parts, at least this many bytes have to arrive in each STALL_TIMEOUT_SECONDS. Otherwise a batch
# that arrives byte by byte would hold its quota for ever.
_LEAST_BYTES_IN_TIME = PART_BYTES
# Longest time for which credit may stay unused if another tenant waits for the quota. A client asks for credit when the
# batch is ready, so it needs this time to send the batch, not to compute it. Within this time, the client has to use
# all of its credit, or at least _LEAST_BYTES_IN_TIME. Otherwise a client could keep a lot of credit by using a little.
_UNUSED_CREDIT_SECONDS = 10.0
# Longest idle time of a file if another tenant waits for its place. The limit is high because Spark tasks may compute
# for minutes between two batches.
_IDLE_FILE_SECONDS = 300.0


class WriteCall(Call, Protocol):
    """The client's side of an exchange that writes a file."""

    def expect_bodies(self, sizes_bytes: Sequence[int]) -> None:
        """Accept bodies up to these sizes, in this order. Call this before the client may send the bodies."""

    def stop_reading(self, then: Callable[[], None]) -> None:
        """Stop reading. Call `then` when no other process is writing a body of this call to memory."""


class GivenUpError(Exception):
    """Raised when the client gives up the file, which is not a failure."""


@dataclass(eq=False, slots=True, kw_only=True)
class WriteExchange:
    """Exchange with one client, after its first message."""

    call: WriteCall
    replies: Replies
    request: WriteRequest
    file: OpenFile
    quota: Quota
    settings: ServeSettings
    metrics: WriterMetrics
    span: Span
    must_give_way: Callable[[], bool] = lambda: False
    """Callback that returns whether this idle file has to give its place to another tenant."""
    admission_seconds: float = field(init=False, default=0.0)
    _asks: deque[int] = field(init=False, default_factory=deque)
    _asked: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    # Reservations of batches for which the client has credit, and which the file has not taken yet.
    _credit: deque[Reservation] = field(init=False, default_factory=deque)
    _credit_changed: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    # Bytes of the credit that batches have used, and the number of times that the batches have used up all credit.
    _used_bytes: int = field(init=False, default=0)
    _used_up: int = field(init=False, default=0)
    _batches: Batches = field(init=False)
    # Whether the batch for the oldest credit has arrived. If so, the writer does not wait for the client to use that
    # credit.
    _batch_is_here: bool = field(init=False, default=False)
    _batch_came: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _stored_batches: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._batches = Batches(
            self.request,
            max_message_bytes=self.settings.max_message_bytes,
            allowance_bytes=self._allowance_bytes,
        )

    async def run(self) -> Footer:
        """Receive batches until the client finishes, then finish the file; raises UpdraftError and GivenUpError."""
        receiving = asyncio.create_task(self._receive())
        steps = [self._answer_asks(), self._watch_credit(), self._watch_unused_credit(), self._watch_client()]
        steps.append(self._watch_idle_file())
        if self.request.is_synchronous:
            steps.append(self._tell_stored())
        helpers = [*map(asyncio.create_task, steps), asyncio.create_task(self.file.failed.wait())]
        try:
            await asyncio.wait({receiving, *helpers}, return_when=asyncio.FIRST_COMPLETED)
            if self.file.error is not None:
                raise self.file.error
            for task in (receiving, *helpers):
                if task.done():
                    task.result()
        finally:
            for task in (receiving, *helpers):
                task.cancel()
            try:
                await asyncio.gather(receiving, *helpers, return_exceptions=True)
            finally:
                # Free the batch even if this task is cancelled a second time: a deadline may cancel, and then a client
                # that hangs up.
                self._let_go_of_batch(receiving)
                self.call.stop_reading(self._release_credit)
        # Await nothing after this: the outcome of the exchange has to be the outcome of the file.
        return await self.file.finish()

    def _release_credit(self) -> None:
        while self._credit:
            self._credit.popleft().release()

    def _let_go_of_batch(self, receiving: asyncio.Task[None]) -> None:
        """Free a batch that the file has not taken.

        This exchange and the frames of its error stay in memory until the client has the outcome. The batch must be
        freed earlier, because its reservation is released now and other batches use these bytes.
        """
        self._batches.drop()
        if not receiving.cancelled() and (error := receiving.exception()) is not None:
            traceback.clear_frames(error.__traceback__)

    async def _receive(self) -> None:
        last: Finish | None = None
        # Keep no message in a variable while waiting for the next message. By then, the row group owns the message's
        # memory.
        while (fields := await self._read()) is not None:
            if last is not None:
                raise ProtocolError("a message arrived after finish")
            last = await self._take(fields)
            del fields
        if last is None:
            await fail_without_finish()
        progress = self.file.progress
        if (last.batches, last.rows) != (progress.batches, progress.rows):
            raise ProtocolError(
                f"the client says that it sent {last.batches} batches with {last.rows} rows, "
                f"but {progress.batches} with {progress.rows} arrived"
            )

    async def _read(self) -> FlightFields | None:
        message = await self.call.read()
        self.replies.client_signs += 1
        return None if message is None else self._batches.split(message)

    async def _take(self, fields: FlightFields) -> Finish | None:
        """Act on one message; return the client's finish if the message is one."""
        if fields.descriptor:
            raise ProtocolError("a second flight descriptor arrived: only the first message has one")
        metadata = parse_metadata(WriteRequestMetadata, fields.app_metadata)
        event = metadata.WhichOneof("event")
        if event not in ("sequence", "part") and (fields.data_header or fields.data_body):
            raise ProtocolError(
                f"a message that is not a batch ({event}) has data: only a batch with credit may have data"
            )
        match event:
            case "ask":
                self._take_ask(metadata.ask.body_bytes)
            case "sequence":
                await self._take_batch(metadata.sequence, fields)
            case "part":
                await self._take_part(metadata.part, fields)
            case "finish":
                if self._batches.is_in_parts:
                    raise ProtocolError("finish came inside a batch that comes in parts")
                return metadata.finish
            case "abort":
                raise GivenUpError(metadata.abort.reason)
            case "keep_alive":
                return None
            case _:
                raise ProtocolError("a message has none of ask, batch, finish and abort")
        return None

    def _take_ask(self, body_bytes: int) -> None:
        number = self.file.progress.batches + len(self._credit) + len(self._asks) + 1
        limit_bytes, setting = batch_limit(
            self.settings.max_batch_bytes,
            self.settings.max_message_bytes,
            quota_bytes=self.quota.limits.quota_bytes,
            cap_bytes=self.quota.caps.of(self.request.share).max_quota_bytes,
        )
        check_batch_size(number, body_bytes, limit_bytes=limit_bytes, setting=setting)
        if len(self._asks) >= _MAX_UNANSWERED_ASKS:
            raise ProtocolError(f"more than {_MAX_UNANSWERED_ASKS} asks without an answer")
        self._asks.append(body_bytes)
        self._asked.set()

    async def _take_part(self, part: BatchPart, fields: FlightFields) -> None:
        sequence = self.file.progress.batches + 1
        credit_bytes = self._credit[0].held_bytes if self._credit else 0
        await self._batches.take_part(sequence, part, fields, credit_bytes=credit_bytes)

    async def _take_batch(self, sequence: int, fields: FlightFields) -> None:
        expected = self.file.progress.batches + 1
        if sequence != expected:
            raise ProtocolError(f"batch {sequence} came where batch {expected} was expected")
        if not self._credit:
            raise ProtocolError(f"batch {sequence} came without credit: ask first and wait for the credit")
        # Keep the credit queued until the file has taken the batch. Until then, a synchronous file must not receive
        # more credit.
        reservation = self._credit[0]
        credit_bytes = reservation.held_bytes
        self._batch_is_here = True
        try:
            raw_bytes = self._batches.raw_bytes(fields)
            batch, claims = await self._batches.decoded(sequence, fields, credit_bytes=credit_bytes)
            reservation.resize(reserved_bytes(raw_bytes) + claims.unbacked_bytes)
        except BaseException:
            reservation.release()
            raise
        self._credit.popleft()
        self._used_bytes += credit_bytes
        self._used_up += not self._credit
        self._expect_bodies()
        self._batch_is_here = False
        self._credit_changed.set()
        self.file.add(batch, reservation, raw_bytes=raw_bytes, claims=claims)
        self._batch_came.set()

    async def _answer_asks(self) -> None:
        while True:
            await self._asked.wait()
            started = time.monotonic()
            await self._no_more_credit_than(_MAX_UNUSED_CREDIT - 1)
            self._credit.append(await self._room_for(reserved_bytes(self._asks[0]) + self._allowance_bytes))
            self._asks.popleft()
            if not self._asks:
                self._asked.clear()
            waited_seconds = time.monotonic() - started
            self.admission_seconds += waited_seconds
            self.metrics.admission_seconds.observe(waited_seconds)
            if waited_seconds >= _SHORTEST_TRACED_WAIT_SECONDS:
                self.span.took("updraft.writer.admission", waited_seconds)
            self._credit_changed.set()
            self._expect_bodies()
            await self.replies.give_credit()

    def _expect_bodies(self) -> None:
        """Set the size limits of the bodies that the client may send next, from the credits."""
        covered_bytes = (credit.held_bytes - self._allowance_bytes for credit in self._credit)
        self.call.expect_bodies([size_bytes // reserved_bytes(1) for size_bytes in covered_bytes])

    async def _room_for(self, wanted_bytes: int) -> Reservation:
        limit_bytes = self.request.in_flight_limit_bytes
        if limit_bytes is not None:
            # Batches with credit that have not arrived are in flight too. The file's own count excludes them, so wait
            # here.
            await self._no_more_credit_than(0)
            await self.file.room_for(wanted_bytes, limit_bytes)
        return await self.quota.acquire(self.request.share, wanted_bytes)

    async def _no_more_credit_than(self, batches: int) -> None:
        while len(self._credit) > batches:
            self._credit_changed.clear()
            await self._credit_changed.wait()

    @property
    def _allowance_bytes(self) -> int:
        """Bytes that each credit covers for values without bytes, so that an arrived batch never waits for room."""
        if not self.request.decoder.has_unbacked:
            return 0
        return unbacked_allowance_bytes(self.quota.limits.quota_bytes)

    async def _tell_stored(self) -> None:
        while True:
            await self._batch_came.wait()
            self._batch_came.clear()
            batches = self.file.progress.batches
            await self.file.room_for(0, limit_bytes=0)
            self._stored_batches = batches
            await self.replies.stored(batches)

    async def _watch_credit(self) -> None:
        """End the exchange if the client has credit for a batch and does not send the batch."""
        while True:
            while not self._credit:
                self._credit_changed.clear()
                await self._credit_changed.wait()
            oldest, come_bytes = self._credit[0], self._batches.come_bytes
            await asyncio.sleep(STALL_TIMEOUT_SECONDS)
            is_same = bool(self._credit) and self._credit[0] is oldest and not self._batch_is_here
            if is_same and self._batches.come_bytes - come_bytes < _LEAST_BYTES_IN_TIME:
                raise DeadlineError(
                    f"the client did not use its credit for a batch: within {STALL_TIMEOUT_SECONDS:g} seconds it sent "
                    f"neither the whole batch nor {_LEAST_BYTES_IN_TIME} bytes of its parts: ask for credit only for a "
                    "batch that can be sent at once"
                )

    async def _watch_unused_credit(self) -> None:
        """End the exchange if its client does not use its credit while a tenant below its share waits for room."""
        silence = Silence(_UNUSED_CREDIT_SECONDS)
        while True:
            while not self._credit:
                self._credit_changed.clear()
                await self._credit_changed.wait()
            await asyncio.sleep(silence.look_seconds)
            is_unused = bool(self._credit) and not self._batch_is_here
            owed = is_unused and self.quota.is_owed_to_others(self.request.share)
            signs = self._used_up, (self._used_bytes + self._batches.come_bytes) // _LEAST_BYTES_IN_TIME
            if silence.is_too_long(signs, owed=owed):
                raise self._given_way(
                    f"the client did not use its credit within {_UNUSED_CREDIT_SECONDS:g} seconds, nor "
                    f"{_LEAST_BYTES_IN_TIME} bytes of it, while another tenant waited for the quota: ask for credit "
                    "only for batches that can be sent at once, and retry later"
                )

    async def _watch_idle_file(self) -> None:
        """End the exchange if its client has not sent a batch for a long time and another tenant needs its place."""
        silence = Silence(_IDLE_FILE_SECONDS)
        while True:
            await asyncio.sleep(silence.look_seconds)
            is_idle = silence.is_too_long(self.file.progress.batches, owed=self._waits_for_client)
            if is_idle and self.must_give_way():
                raise self._given_way(
                    f"the client sent no batch for {_IDLE_FILE_SECONDS:g} seconds, its tenant has more than its share "
                    "of the open files, and another tenant waited for one: open files later or fewer at once, and "
                    "retry later"
                )

    def _given_way(self, reason: str) -> QuotaError:
        return QuotaError(reason, retry_after_milliseconds=self.quota.limits.retry_after_milliseconds)

    async def _watch_client(self) -> None:
        """End the exchange if the client stays silent for too long while the writer waits for a message."""
        silence = Silence(self.settings.client_silence_seconds)
        while True:
            await asyncio.sleep(silence.look_seconds)
            if silence.is_too_long(self.replies.client_signs, owed=self._waits_for_client):
                raise DeadlineError(
                    f"the client was silent for {silence.limit_seconds:g} seconds while the writer waited for it: a "
                    "client that needs longer has to send keepalives, or raise --client-silence-seconds of the writer"
                )

    @property
    def _waits_for_client(self) -> bool:
        """Whether the writer waits for the client.

        The writer waits for the client if no ask waits for the quota and, in a synchronous file, all batches are
        stored.
        """
        stores = self.request.is_synchronous and self._stored_batches < self.file.progress.batches
        return not self._asks and not stores
