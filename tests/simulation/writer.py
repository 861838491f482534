# SPDX-License-Identifier: Apache-2.0
"""Simulated writer: the real quota, open files, credit, row groups and sinks, between simulated streams and a disk.

An encoder that copies rows replaces Parquet, so that a published file shows its rows. `_write` executes the steps of
`updraft_writer.exchanges.Exchanges._write` in the same order.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from tests.simulation.client.recovery import Failure, Kind, Origin
from tests.simulation.disk import Disk, SimulatedStorage, SimulatedThreads
from tests.simulation.messages import Refused
from tests.simulation.network import Stream
from tests.simulation.virtual_loop import Process
from tests.simulation.world import World
from tests.support.invariants import WRONG, Invariants, Rows, Source, runs
from updraft.errors import (
    DeadlineError,
    PoolUnavailableError,
    ProtocolError,
    QuotaError,
    SinkError,
    UpdraftError,
)
from updraft.service.spans import UNRECORDED
from updraft.service.tenants import own_room
from updraft.v1.write_pb2 import Pace, Receipt, WriteCommand
from updraft_writer.encoders.encoder import Footer
from updraft_writer.exchange import GivenUpError, WriteExchange
from updraft_writer.open_file import OpenFile, Shape
from updraft_writer.open_files import OpenFiles
from updraft_writer.pieces import Piece
from updraft_writer.quota import Quota, QuotaLimits
from updraft_writer.replies import Replies
from updraft_writer.request import WriteRequest, with_schema
from updraft_writer.sinks.stored import RetryPolicy, StoredSink

_SCHEMA = pa.schema([("row", pa.int64())])
_KINDS: tuple[tuple[type[UpdraftError], Kind], ...] = (
    (QuotaError, Kind.QUOTA),
    (PoolUnavailableError, Kind.POOL_UNAVAILABLE),
    (SinkError, Kind.SINK),
    (DeadlineError, Kind.DEADLINE),
    (ProtocolError, Kind.PROTOCOL),
)
_FOOTER = b"."
_RETAINED_BYTES = 20_000
_MIB = 1 << 20
_NUMBER_BITS, _ATTEMPT_BITS = 32, 8


class OpenWrite(NamedTuple):
    """Command that opens a file."""

    tenant: str
    path: str
    is_synchronous: bool
    first_id: int
    """Id of the file's first row."""


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Size and limits of a writer."""

    quota_bytes: int = _MIB
    max_open_files: int = 8
    row_group_bytes: int = 128 << 10
    store_seconds: float = 0.01
    encode_seconds: float = 0.01
    storage_silence_seconds: float = 120.0
    max_message_bytes: int = 4 * _MIB
    max_batch_bytes: int = 4 * _MIB
    client_silence_seconds: float = 120.0


class _RowEncoder:
    """Encoder whose file consists of the rows, eight bytes each, and an end marker."""

    name = "rows"
    on_gpu = False
    reason: Any = None

    def __init__(self) -> None:
        self._groups = 0
        self._rows = 0

    @property
    def retained_bytes(self) -> int:
        return 100 * self._groups

    def write(self, table: pa.Table) -> list[Piece]:
        self._groups += 1
        self._rows += table.num_rows
        rows = table.column("row").to_numpy().tobytes()
        return [rows[: len(rows) // 2], rows[len(rows) // 2 :]]

    def close(self) -> list[Piece]:
        return [_FOOTER]

    @property
    def footer(self) -> Footer:
        return Footer(self._groups, self._rows)


def first_id(file: int, attempt: int) -> int:
    """Return the id of the first row of an attempt at a file. An id identifies the file, the attempt and the row."""
    return (file << _NUMBER_BITS + _ATTEMPT_BITS) + (attempt << _NUMBER_BITS) + 1


def ids_bytes(begin: int, end: int) -> bytes:
    """Return the bytes of the rows with these ids, as in batches and files."""
    return np.arange(begin, end, dtype=np.int64).tobytes()


def source_of(row: int) -> Source:
    """Return the file whose row has this id."""
    return Source("", "files", str(row >> _NUMBER_BITS + _ATTEMPT_BITS))


def _described(content: bytes) -> list[Rows]:
    """Return the rows of a file. If the file lacks its end, return a wrong row."""
    ids = np.frombuffer(content, dtype=np.int64, count=len(content) // 8)
    found = [_rows(int(ids[begin]), int(ids[end])) for begin, end in runs(ids)]
    is_whole = content[8 * len(ids) :] == _FOOTER
    return found if is_whole else [*found, Rows(source_of(0), 0, WRONG, WRONG)]


def _rows(first: int, last: int) -> Rows:
    attempt, number = divmod(first % (1 << _NUMBER_BITS + _ATTEMPT_BITS), 1 << _NUMBER_BITS)
    return Rows(source_of(first), attempt, number, number + last - first)


@cache
def _schema_header() -> bytes:
    return _header_of(_SCHEMA.serialize().to_pybytes())


@cache
def batch_header(rows: int) -> bytes:
    """Return the Arrow metadata of a batch with this many rows."""
    batch = pa.record_batch([pa.array(np.arange(rows, dtype=np.int64))], schema=_SCHEMA)
    return _header_of(batch.serialize().to_pybytes())


def _header_of(encapsulated: bytes) -> bytes:
    # Skip the continuation marker and the length of the header.
    return encapsulated[8 : 8 + int.from_bytes(encapsulated[4:8], "little")]


class _Call:
    """Call with the interface that the product's exchange uses."""

    def __init__(self, stream: Stream) -> None:
        self.read = stream.receive
        self._stream = stream

    def expect_bodies(self, _sizes_bytes: Sequence[int]) -> None:
        """Do nothing: a stream has no bodies outside its messages."""

    def stop_reading(self, then: Callable[[], None]) -> None:
        """Call `then` at once, because no receiver is writing a body."""
        then()

    async def write(self, message: bytes) -> None:
        self._stream.reply(message)


class Writer:
    """Writer, including all its restarts."""

    def __init__(
        self,
        world: World,
        disk: Disk,
        name: str,
        settings: WriterSettings,
        invariants: Invariants,
    ) -> None:
        self.world = world
        self.disk = disk
        self.name = name
        self.settings = settings
        self.is_up = False
        self.is_draining = False
        self.quota: Quota
        self.files: OpenFiles
        self._invariants = invariants
        self._process: Process
        self._streams: dict[Stream, None] = {}
        self.largest_batch_bytes = 0
        """Size of the largest batch in any file."""

    def boot(self) -> None:
        """Start the writer."""
        settings, clock = self.settings, self.world.loop.time
        self._process = Process(self.name)
        self.quota = Quota(QuotaLimits(settings.quota_bytes, own_room(settings.quota_bytes)), clock=clock)
        self.files = OpenFiles(self.quota, max_open_files=settings.max_open_files, clock=clock)
        self._encode_threads = SimulatedThreads(self.world, settings.encode_seconds)
        self._store_threads = SimulatedThreads(self.world, settings.store_seconds, self.disk)
        self._closing: dict[asyncio.Task[None], None] = {}
        self.is_up, self.is_draining = True, False
        self.world.note(self.name, "is up")

    @property
    def streams(self) -> list[Stream]:
        """Calls that this writer serves."""
        return list(self._streams)

    def crash(self) -> None:
        """End the writer at once. Published files and hidden files stay on the disk."""
        self.is_up = False
        self.world.note(self.name, "crashes")
        self._process.crash()
        for stream in list(self._streams):
            stream.break_now()
        self._streams.clear()

    def drain(self) -> None:
        """Open no new files."""
        if self.is_up and not self.is_draining:
            self.is_draining = True
            self.world.note(self.name, "drains")
            self.files.refuse()

    def accept(self, stream: Stream, command: OpenWrite) -> None:
        """Serve a call of a client."""
        self._streams[stream] = None
        stream.server = self._process.run(lambda: self.world.loop.create_task(self._serve(stream, command)))

    async def _serve(self, stream: Stream, command: OpenWrite) -> None:
        try:
            stream.reply(await self._write(stream, command))
            self.world.note(self.name, command.path, "has a receipt")
        except GivenUpError:
            self.world.note(self.name, command.path, "was given up")
        except UpdraftError as error:
            kind = next((kind for of, kind in _KINDS if isinstance(error, of)), Kind.INTERNAL)
            self.world.note(self.name, command.path, "failed", kind.value, error.first_line())
            hint = error.retry_after_milliseconds if isinstance(error, QuotaError) else None
            stream.reply(Refused(Failure(kind, Origin.POOL, is_in_band=True), hint))
        finally:
            self._streams.pop(stream, None)

    async def _write(self, stream: Stream, command: OpenWrite) -> Receipt:
        settings, world = self.settings, self.world
        call = cast(Any, _Call(stream))
        replies = Replies(call, max_message_bytes=settings.max_message_bytes)
        request = _request(command)
        with ExitStack() as stack:
            place = stack.enter_context(self.files.place(command.tenant))
            threads = cast(Any, self._store_threads)
            storage = SimulatedStorage(self.disk, command.path, _described)
            sink = StoredSink(
                storage, command.path, threads, RetryPolicy(), silence_seconds=settings.storage_silence_seconds
            )
            file = OpenFile(
                _RowEncoder(),
                sink,
                Shape(_SCHEMA, lambda: self.files.target_bytes(settings.row_group_bytes), 1 << 31),
                self.quota,
                retained=self.quota.charge(command.tenant),
                encode_threads=cast(Any, self._encode_threads),
            )
            sink.on_silence = file.storage_is_silent
            # From here on, the file keeps its place until the file is closed, however long the storage takes.
            stack.callback(self._close_later, file, stack.pop_all())
            self.files.add(file)
            await file.open()
            exchange = WriteExchange(
                call=call,
                replies=replies,
                request=request,
                file=file,
                quota=self.quota,
                settings=cast(Any, settings),
                metrics=_METRICS,
                span=UNRECORDED,
                must_give_way=partial(self.files.must_give_way, place),
            )
            watch = asyncio.ensure_future(self._watch())
            try:
                footer = await exchange.run()
            finally:
                watch.cancel()
        progress = file.progress
        if footer.rows != progress.rows:
            self._invariants.fail(f"{command.path} has a footer of {footer.rows} rows, and {progress.rows} came")
        receipt = Receipt(rows=progress.rows, batches=progress.batches, file_bytes=progress.stored_bytes)
        world.note(self.name, command.path, "is published")
        return receipt

    def _close_later(self, file: OpenFile, place: ExitStack) -> None:
        task = asyncio.ensure_future(self._close(file, place))
        self._closing[task] = None
        task.add_done_callback(self._closing.pop)

    async def _close(self, file: OpenFile, place: ExitStack) -> None:
        with place:
            try:
                await file.close()
            finally:
                self.files.remove(file)

    async def _watch(self) -> None:
        """Check what the writer holds while a file is open."""
        while True:
            await asyncio.sleep(5.0)
            self.check_quota()

    def check_quota(self) -> None:
        """Fail if the writer holds more bytes than its quota, or a negative number of bytes.

        A batch larger than the quota is admitted alone, and files retain a few bytes without a reservation.
        """
        limit_bytes = max(self.settings.quota_bytes, 2 * self.largest_batch_bytes) + _RETAINED_BYTES
        self._invariants.holds(self.name, self.quota.held_bytes, limit_bytes)

    def check_settled(self) -> None:
        """Fail if the writer holds anything although it has no files."""
        held = {
            "bytes": self.quota.held_bytes,
            "reservations": self.quota.reservations,
            "waiting": self.quota.waiting,
            "files": len(self.files),
        }
        self._invariants.settles(self.name, held)


_METRICS = cast(Any, types.SimpleNamespace(admission_seconds=types.SimpleNamespace(observe=lambda _seconds: None)))


def _request(command: OpenWrite) -> WriteRequest:
    pace = Pace.PACE_SYNCHRONOUS if command.is_synchronous else Pace.PACE_ASYNCHRONOUS
    return with_schema(WriteCommand(path=command.path, pace=pace), memoryview(_schema_header()), share=command.tenant)
