# SPDX-License-Identifier: Apache-2.0
"""Open file, which gathers batches into row groups, encodes them, and passes the pieces to the sink, in order.

Each row group has its own asyncio task. The task holds the row group's reservation and releases it, however the task
ends. Two first-come-first-served locks, one for encoding and one for storing, keep the row groups of a file in order.
One row group can be encoded while the previous one is stored. A GPU's encoder encodes several waiting row groups in one
step. Nothing in this module waits for the quota, so held bytes are always released in the end.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import structlog

from updraft.arrow_cost import NO_CLAIMS, Claims
from updraft.errors import InternalError, UpdraftError
from updraft.service.spans import UNRECORDED, Span
from updraft_writer.encoders.encoder import Encoder, Footer
from updraft_writer.file_state import FileEvent, FileLife, FileState
from updraft_writer.futures import ignore_failure
from updraft_writer.gpu.admission import DevicePlace
from updraft_writer.pieces import Piece
from updraft_writer.quota import Quota, Reservation
from updraft_writer.row_groups import RowGroup, RowGroupBuilder
from updraft_writer.sinks.sink import Sink

Result = TypeVar("Result")

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Progress:
    """Counts and times of a file so far."""

    rows: int = 0
    batches: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    encode_seconds: float = 0.0
    store_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Shape:
    """Rule for cutting row groups. The target size is recomputed for each batch, from the number of open files."""

    schema: pa.Schema
    target_bytes: Callable[[], int]
    max_rows: int


@dataclass(eq=False)
class OpenFile:
    """File from its command to its receipt. The caller that opened the file must close it."""

    encoder: Encoder
    sink: Sink
    shape: Shape
    quota: Quota
    _: KW_ONLY
    retained: Reservation
    """Reservation for the bytes that the file holds between row groups; the file releases it."""
    row_group_filter_bytes: int = 0
    """Memory that each row group's bloom filters take until the file ends."""
    encode_threads: Executor
    device: DevicePlace | None = None
    choose: Callable[[Sequence[pa.RecordBatch]], None] = lambda _batches: None
    """Callback that chooses the encoder, called with the batches of the first row group."""
    most_joined_bytes: Callable[[], int] = lambda: 0
    """Callback that returns the most raw bytes of waiting row groups that the encoder encodes in one step."""
    span: Span = UNRECORDED
    progress: Progress = field(init=False, default_factory=Progress)
    failed: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    stuck: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    """Set when a storage operation does not return in time. Afterwards, closing the file may take arbitrarily long."""

    def __post_init__(self) -> None:
        self._life = FileLife()
        self._is_chosen = False
        self._builder = RowGroupBuilder(max_rows=self.shape.max_rows)
        self._unencoded: deque[RowGroup] = deque()
        self.retained.resize(self.encoder.retained_bytes)
        self._changed = asyncio.Event()
        self._encode_turn = asyncio.Lock()
        self._store_turn = asyncio.Lock()
        self._moving: dict[asyncio.Task[None], Reservation] = {}
        self._completion: asyncio.Task[Footer] | None = None

    @property
    def partial_bytes(self) -> int:
        """Bytes of the partial row group. The file holds these bytes until the row group is full or flushed."""
        return self._builder.partial_bytes

    @property
    def moving_bytes(self) -> int:
        """Bytes being encoded or stored. The file releases these bytes even if no more input arrives."""
        return sum(reservation.held_bytes for reservation in self._moving.values())

    @property
    def error(self) -> UpdraftError | None:
        """Error that ended this file, or None."""
        return self._life.error

    async def open(self) -> None:
        """Create the hidden file; raises SinkError."""
        opening = asyncio.ensure_future(self.sink.open())
        try:
            await self._unless_failed(opening)
        except UpdraftError as error:
            self._poison(error)
            raise
        finally:
            opening.cancel()

    def add(
        self, batch: pa.RecordBatch, reservation: Reservation, *, raw_bytes: int, claims: Claims = NO_CLAIMS
    ) -> None:
        """Add a batch and its reservation. The file releases the reservation, even if this method raises.

        The reservation must hold `reserved_bytes(raw_bytes)` plus `claims.unbacked_bytes`. This includes room for the
        encoded bytes, because encoding the batch reserves nothing more.
        """
        try:
            self._life.check_open()
        except UpdraftError:
            reservation.release()
            raise
        self.progress.batches += 1
        self.progress.rows += batch.num_rows
        self.progress.raw_bytes += raw_bytes
        target_bytes = self.shape.target_bytes()
        try:
            full = self._builder.add(
                batch,
                reservation,
                raw_bytes=raw_bytes + claims.unbacked_bytes,
                encoding_bytes=claims.encoding_bytes,
                target_bytes=target_bytes,
            )
        except UpdraftError:
            reservation.release()
            raise
        self._send(full)
        if self.partial_bytes:
            self.quota.tell_shortage()

    def flush(self) -> None:
        """Encode the partial row group now, because its memory is needed elsewhere."""
        self._send(self._builder.seal())

    async def room_for(self, wanted_bytes: int, limit_bytes: int) -> None:
        """Wait until the file can hold `wanted_bytes` more within `limit_bytes`, or until the file holds no bytes."""
        while (held_bytes := self.partial_bytes + self.moving_bytes) and held_bytes + wanted_bytes > limit_bytes:
            self._life.check()
            self.flush()
            self._changed.clear()
            await self._changed.wait()

    async def finish(self) -> Footer:
        """Encode and store the remaining rows and publish the file; raises the file's error.

        If the caller is cancelled before publication has begun, the file is given up. If the caller is cancelled later,
        the caller receives the file's outcome instead of CancelledError.
        """
        self._life.handle(FileEvent.FINISH)
        self._send(self._builder.seal())
        # Complete the file in a separate task, because steps on threads continue even if the caller is cancelled.
        completion = self._completion = asyncio.create_task(self._complete())
        try:
            return await self._unless_failed(completion)
        except asyncio.CancelledError:
            self._life.handle(FileEvent.ABORT)
            if self._life.state is FileState.PUBLISHING:
                await self._end_of(completion)
            if not completion.done():
                raise
            return completion.result()

    def interrupt(self, error: UpdraftError) -> None:
        """End the file with an error from outside, unless the file has ended or is being published."""
        self._life.interrupt(error)
        if self._life.state is FileState.POISONED:
            self._stop()

    def storage_is_silent(self, error: UpdraftError) -> None:
        """End the file now. A later `close` still waits for the running storage operation."""
        self.stuck.set()
        self._poison(error)

    async def close(self) -> None:
        """Give up the file unless it is published, and drop its queued row groups. Return when it holds no bytes."""
        self._life.handle(FileEvent.ABORT)
        self._drop_partial()
        self._leave_device()
        # A step on a thread cannot be interrupted, and uses its reserved memory until it returns.
        await asyncio.gather(*self._moving, *([self._completion] if self._completion else []), return_exceptions=True)
        self.retained.release()
        if self._life.state is not FileState.PUBLISHED:
            await self.sink.discard()

    async def _end_of(self, step: asyncio.Future[Any]) -> None:
        """Wait until a step has ended or the file has failed, even if the caller is cancelled meanwhile."""
        while not step.done() and not self.failed.is_set():
            with suppress(asyncio.CancelledError):
                await self._unless_failed(step)

    async def _unless_failed(self, step: "asyncio.Future[Result]") -> Result:
        """Wait for a step. If the file fails first, raise the file's error at once, because the step may hang."""
        failing = asyncio.create_task(self.failed.wait())
        awaited: set[asyncio.Future[Any]] = {step, failing}
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            failing.cancel()
        if not step.done():
            step.add_done_callback(ignore_failure)
            self._life.check()
        return await asyncio.shield(step)

    def _send(self, groups: list[RowGroup]) -> None:
        self._unencoded += groups
        for group in groups:
            task = asyncio.create_task(self._carry(group))
            self._moving[task] = group.reservation
            task.add_done_callback(self._arrived)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        del self._moving[task]
        self._changed.set()

    async def _carry(self, group: RowGroup) -> None:
        """Encode and store one row group, then release its reservation."""
        with group.reservation as held:
            try:
                async with self._encode_turn:
                    if not group.batches:
                        # An earlier row group has taken over this row group's batches.
                        return
                    self._join_waiting(group)
                    with self.span.child("updraft.writer.encode"):
                        pieces = await self._encode(group)
                async with self._store_turn:
                    with self.span.child("updraft.writer.store"):
                        while pieces:
                            await self._store(pieces.pop(0), held)
            except Exception as error:
                self._poison(_as_updraft_error(error))

    def _join_waiting(self, group: RowGroup) -> None:
        """Join waiting row groups to `group`, as many as the encoder encodes in one step."""
        self._unencoded.popleft()
        room_bytes = self.most_joined_bytes() - group.raw_bytes
        while self._unencoded and (following := self._unencoded[0]).raw_bytes <= room_bytes:
            self._unencoded.popleft()
            room_bytes -= following.raw_bytes
            group.join(following)

    async def _encode(self, group: RowGroup) -> list[Piece]:
        self._life.check()
        if not self._is_chosen:
            self._is_chosen = True
            self.choose(group.batches)
        self._make_room_for_filters(group)
        async with self._turn_on_device(group.raw_bytes):
            # Check again: if the file ended while the row group waited for its turn, the row group holds no memory on
            # the GPU.
            self._life.check()
            # Keep no reference to the table here: the table's memory must be free when the reservation is released.
            pieces = await self._on_encode_thread(partial(self.encoder.write, group.take_table(self.shape.schema)))
        self._charge_retained(group.reservation)
        group.reservation.resize(sum(map(len, pieces)))
        return pieces

    @asynccontextmanager
    async def _turn_on_device(self, raw_bytes: int) -> AsyncIterator[None]:
        """Hold a turn on the GPU if the GPU encodes the row group. Wait for the turn before occupying a thread."""
        if self.device is None:
            yield
            return
        if not self.encoder.on_gpu:
            with self.device.step_on_cpu():
                yield
            return
        async with self.device.step(raw_bytes):
            yield
        if not self.encoder.on_gpu:
            self._leave_device()

    def _leave_device(self) -> None:
        if self.device is not None:
            self.device.close()

    def _make_room_for_filters(self, group: RowGroup) -> None:
        """Reserve memory for the bloom filters of a row group before they are created; raises QuotaError.

        Most rows are smaller when encoded, so filters can use half of the bytes that were reserved for the encoded
        rows. This method reserves the bytes that the filters need beyond that half.
        """
        spare_bytes = max(0, group.reservation.held_bytes - group.raw_bytes) // 2
        more_bytes = self.row_group_filter_bytes - spare_bytes
        if more_bytes > 0:
            self.quota.check_room(self.retained.tenant, more_bytes, "bloom filters of a row group")
            self.retained.resize(self.retained.held_bytes + more_bytes)

    def _charge_retained(self, held: Reservation) -> None:
        """Move the bytes that the encoder now retains from the row group's reservation to the file's own.

        If the encoder retains fewer bytes than before, the difference moves back to the row group's reservation,
        because these bytes are now in the pieces that this reservation covers.
        """
        retained_bytes = self.encoder.retained_bytes
        held.hand_over(self.retained, retained_bytes - self.retained.held_bytes)
        self.retained.resize(retained_bytes)

    async def _store(self, piece: Piece, held: Reservation) -> None:
        self._life.check()
        started = time.monotonic()
        await self.sink.write(piece)
        self.progress.store_seconds += time.monotonic() - started
        self.progress.stored_bytes += len(piece)
        held.resize(max(0, held.held_bytes - len(piece)))

    async def _complete(self) -> Footer:
        try:
            await asyncio.gather(*self._moving)
            self._life.check()
            with self.span.child("updraft.writer.publish"):
                for piece in await self._on_encode_thread(self.encoder.close):
                    await self._store(piece, self.retained)
                self._leave_device()
                self._life.handle(FileEvent.PUBLISH)
                await self.sink.publish()
                self._life.handle(FileEvent.PUBLISHED)
        except Exception as error:
            self._poison(_as_updraft_error(error))
            self._life.check()
            raise
        return self.encoder.footer

    async def _on_encode_thread(self, step: Callable[[], list[Piece]]) -> list[Piece]:
        def timed() -> list[Piece]:
            started = time.monotonic()
            try:
                return step()
            finally:
                self.progress.encode_seconds += time.monotonic() - started

        return await asyncio.get_running_loop().run_in_executor(self.encode_threads, timed)

    def _poison(self, error: UpdraftError) -> None:
        self._life.fail(error)
        self._stop()

    def _stop(self) -> None:
        self._drop_partial()
        self._leave_device()
        self.failed.set()
        self._changed.set()

    def _drop_partial(self) -> None:
        for group in self._builder.seal():
            group.reservation.release()


def _as_updraft_error(error: Exception) -> UpdraftError:
    if isinstance(error, UpdraftError):
        return error
    _log.error("a bug in the writer lost a file", exc_info=error)
    return InternalError("the writer failed in an unexpected way: its log has the details")
