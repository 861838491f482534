# SPDX-License-Identifier: Apache-2.0
"""However a file ends, the writer holds nothing afterwards: no bytes, no reservation, no waiter, no open file."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from running_writer import (
    BATCH,
    BATCH_BYTES,
    SCHEMA,
    WITHIN_SECONDS,
    RawExchange,
    RunningWriter,
    command,
    gated_storage,
    running_writer,
    wait_for,
    write,
)

from updraft.errors import EncodeError, PoolUnavailableError, QuotaError, SinkError
from updraft.v1.exchange_pb2 import ErrorKind
from updraft_writer.file_state import FileState
from updraft_writer.pieces import Piece
from updraft_writer.sinks.local import LocalStorage

# Enough for exactly one batch and its encoding.
ROOM_FOR_ONE_BYTES = 2 * BATCH_BYTES + 1000


def succeeds(writer: RunningWriter) -> None:
    write(writer, writer.root / "whole", BATCH, BATCH)


def is_given_up(writer: RunningWriter) -> None:
    with pytest.raises(ZeroDivisionError):
        write(writer, writer.root / "f", BATCH, then=ZeroDivisionError())


def cannot_be_encoded(writer: RunningWriter) -> None:
    never_null = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with writer.client() as client:
        file = client.create(str(writer.root / "f"), never_null)
        file.write(pa.record_batch([pa.array([1, None])], schema=never_null))
        with pytest.raises(EncodeError, match="cannot be encoded"):
            file.finish()


def cannot_be_stored(writer: RunningWriter) -> None:
    class FullStorage(LocalStorage):
        def write(self, piece: Piece) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer.writer.factory.storage = lambda path, *_, **__: FullStorage(Path(path))
    with pytest.raises(SinkError, match="No space left"):
        write(writer, writer.root / "f", BATCH)


def is_cancelled_while_it_is_stored(writer: RunningWriter) -> None:
    with gated_storage(writer) as gate, RawExchange(writer.address, SCHEMA, command(writer.root / "f")) as exchange:
        exchange.ask(BATCH_BYTES)
        exchange.next_reply()
        exchange.batch(1, BATCH)
        exchange.finish(1, 1000)
        exchange.half_close()
        assert gate.reached.wait(WITHIN_SECONDS)
        exchange.call.cancel()
        # A file that is stored before the writer hears of the end is published.
        (file,) = writer.writer.files._files
        wait_for(lambda: file._life.state is FileState.ABORTED, "the end of the call")


def is_cancelled_while_it_waits_for_room(writer: RunningWriter) -> None:
    with RawExchange(writer.address, SCHEMA, command(writer.root / "f")) as exchange:
        exchange.ask(BATCH_BYTES)
        exchange.ask(BATCH_BYTES)
        wait_for(lambda: writer.writer.quota.waiting == 1, "the wait")
        exchange.call.cancel()
        writer.becomes_empty()


def loses_its_client(writer: RunningWriter) -> None:
    client = writer.client()
    client.create(str(writer.root / "f"), SCHEMA).write(BATCH)
    client.close()


def ends_without_finish(writer: RunningWriter) -> None:
    with RawExchange(writer.address, SCHEMA, command(writer.root / "f")) as exchange:
        exchange.ask(BATCH_BYTES)
        exchange.half_close()
        assert exchange.last_reply().error.kind == ErrorKind.ERROR_KIND_PROTOCOL


def is_refused_for_want_of_room(writer: RunningWriter) -> None:
    with RawExchange(writer.address, SCHEMA, command(writer.root / "f")) as holder:
        holder.ask(BATCH_BYTES)
        holder.next_reply()
        with pytest.raises(QuotaError):
            write(writer, writer.root / "g", BATCH)
        holder.say(abort={"reason": "enough"})
        holder.last_reply()


def waits_for_room_when_the_writer_is_drained(writer: RunningWriter) -> None:
    with (
        writer.client() as client,
        RawExchange(writer.address, SCHEMA, command(writer.root / "f")) as holder,
        RawExchange(writer.address, SCHEMA, command(writer.root / "g")) as waiter,
    ):
        holder.ask(BATCH_BYTES)
        holder.next_reply()
        waiter.ask(BATCH_BYTES)
        wait_for(lambda: writer.writer.quota.waiting == 1, "the wait")
        writer.stop()
        with pytest.raises(PoolUnavailableError):
            client.create(str(writer.root / "h"), SCHEMA).finish()


@pytest.mark.parametrize(
    "how",
    [
        succeeds,
        is_given_up,
        cannot_be_encoded,
        cannot_be_stored,
        is_cancelled_while_it_is_stored,
        is_cancelled_while_it_waits_for_room,
        loses_its_client,
        ends_without_finish,
        is_refused_for_want_of_room,
        waits_for_room_when_the_writer_is_drained,
    ],
)
def test_nothing_is_held_after_a_file_that(how: Callable[[RunningWriter], None], tmp_path: Path) -> None:
    changes = {"quota_bytes": ROOM_FOR_ONE_BYTES, "drain_timeout_seconds": 0.2}
    constants = {"quota.ADMISSION_TIMEOUT_SECONDS": 0.2 if how is is_refused_for_want_of_room else 5.0}
    with running_writer(tmp_path, constants=constants, **changes) as writer:
        how(writer)
        writer.becomes_empty()
        assert writer.files() == (["whole"] if how is succeeds else [])
