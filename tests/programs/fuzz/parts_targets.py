# SPDX-License-Identifier: Apache-2.0
"""Fuzz targets for batches in parts, read by a worker and by a writer: whole exchanges, from the schema to the end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from tests.programs.fuzz.parts import messages_in, parted_batches
from tests.programs.fuzz.target import Pieces, Target
from updraft.arrow_cost import NO_CLAIMS, Claims
from updraft.errors import UpdraftError
from updraft.flight_data import FlightFields, split_flight_data
from updraft.protocol import PROTOCOL_VERSION
from updraft.service.exchange import request_metadata
from updraft.service.spans import UNRECORDED
from updraft.v1 import write_pb2
from updraft.v1.exchange_pb2 import RequestMetadata
from updraft_server.ipc.assignment import Assignment
from updraft_server.ipc.frames import FrameError, FrameKind, encode
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.worker.channel import Channel
from updraft_server.worker.exchange import Exchange
from updraft_writer.encoders.encoder import Footer
from updraft_writer.exchange import GivenUpError, WriteExchange
from updraft_writer.open_file import Progress
from updraft_writer.quota import Quota, QuotaLimits, Reservation
from updraft_writer.replies import Replies
from updraft_writer.request import with_schema
from updraft_writer.row_groups import reserved_bytes
from updraft_writer.settings import ServeSettings

# Default limits of the services.
_BATCH_BYTES, _QUOTA_BYTES = 1 << 30, 4 << 30
_ASSIGNMENT = Assignment(max_batch_bytes=_BATCH_BYTES, max_batch_bytes_setting="--max-batch-bytes")
# Number of event loop turns within which a client that asked for credit receives it. An ask has a few bytes.
_TURNS_UNTIL_CREDIT, _MOST_BYTES_OF_AN_ASK = 4, 32


class _Frames(Channel):
    """Channel of a worker. All frames are available at once, and the channel drops what the worker sends."""

    def __init__(self, frames: bytes) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            super().__init__(theirs)
        self._frames = io.BytesIO(frames)

    def send(self, *_frame: Any) -> None:
        """Drop the frame."""

    def _fill(self, pieces: list[memoryview]) -> None:
        for piece in pieces:
            assert self._frames.readinto(piece) == piece.nbytes


def _read_by_a_worker(pieces: Pieces) -> None:
    with contextlib.suppress(UpdraftError):
        channel = _Frames(_relayed(pieces))
        exchange = Exchange(channel, WorkerSettings())
        exchange.open(_ASSIGNMENT, channel.receive_fields(channel.receive_header()))
        while exchange.take() is not None:
            pass


def _relayed(pieces: Pieces) -> bytes:
    """Return the frames into which a front turns an input, up to the first message that the front refuses."""
    frames = encode(FrameKind.COMMAND, b"", pieces[0])
    with contextlib.suppress(UpdraftError, FrameError):
        for message in messages_in(pieces[1]):
            fields = split_flight_data(message)
            if not _is_heard_by_the_front_alone(fields):
                frames += encode(FrameKind.BATCH, bytes(fields.app_metadata), fields.data_header, fields.data_body)
    return b"".join(map(bytes, [*frames, *encode(FrameKind.END)]))


def _is_heard_by_the_front_alone(fields: FlightFields) -> bool:
    return not fields.data_header and request_metadata(fields).HasField("keep_alive")


class _Client:
    """Client that waits for credit, and drops all replies."""

    def __init__(self, messages: Iterable[bytes]) -> None:
        self._messages = deque(messages)
        self._last = b""

    async def read(self) -> bytes | None:
        """Return the next message; None at the end."""
        if len(self._last) <= _MOST_BYTES_OF_AN_ASK:
            for _ in range(_TURNS_UNTIL_CREDIT):
                await asyncio.sleep(0)
        self._last = self._messages.popleft() if self._messages else b""
        return self._last or None

    def expect_bodies(self, _sizes_bytes: Sequence[int]) -> None:
        """Do nothing, because all bodies are already available."""

    def stop_reading(self, then: Callable[[], None]) -> None:
        """Call `then` at once, because no receiver is writing a body."""
        then()

    async def write(self, _message: bytes) -> None:
        """Drop the message."""


class _File:
    """Open file that accepts every batch."""

    def __init__(self) -> None:
        self.progress = Progress()
        self.failed = asyncio.Event()
        self.error = None

    def add(self, batch: pa.RecordBatch, reservation: Reservation, *, raw_bytes: int, claims: Claims) -> None:
        """Check the batch's reservation, and drop the batch."""
        assert reservation.held_bytes == reserved_bytes(raw_bytes) + claims.unbacked_bytes
        assert claims is NO_CLAIMS or claims.unbacked_bytes >= 0
        self.progress.batches += 1
        self.progress.rows += batch.num_rows
        reservation.release()

    async def finish(self) -> Footer:
        """Return a footer, without writing a file."""
        return Footer(row_groups=0, rows=self.progress.rows)


@functools.cache
def _settings() -> ServeSettings:
    return ServeSettings(root=("/nowhere",))


async def _write(pieces: Pieces) -> None:
    """Run an exchange from the schema to the end. Afterwards, all of the quota must be free."""
    command = write_pb2.WriteCommand(
        protocol_version=PROTOCOL_VERSION,
        delivery=write_pb2.Delivery.DELIVERY_RETURN,
        parquet=write_pb2.ParquetOptions(),
    )
    quota = Quota(QuotaLimits(quota_bytes=_QUOTA_BYTES))
    call: Any = _Client(messages_in(pieces[1]))
    file: Any = _File()
    metrics: Any = SimpleNamespace(admission_seconds=SimpleNamespace(observe=lambda _seconds: None))
    exchange = WriteExchange(
        call=call,
        replies=Replies(call, max_message_bytes=_settings().max_message_bytes),
        request=with_schema(command, memoryview(pieces[0]), share="fuzz"),
        file=file,
        quota=quota,
        settings=_settings(),
        metrics=metrics,
        span=UNRECORDED,
    )
    try:
        await exchange.run()
    finally:
        assert (quota.held_bytes, quota.reservations, quota.waiting) == (0, 0, 0)


def _read_by_a_writer(pieces: Pieces) -> None:
    with contextlib.suppress(UpdraftError, GivenUpError):
        asyncio.run(_write(pieces))


TARGETS = (
    Target("parts for a worker", functools.partial(parted_batches, RequestMetadata), _read_by_a_worker),
    Target("parts for a writer", functools.partial(parted_batches, write_pb2.WriteRequestMetadata), _read_by_a_writer),
)
