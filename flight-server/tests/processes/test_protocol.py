# SPDX-License-Identifier: Apache-2.0
"""Protocol errors of a client, as a worker reports them."""

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pool_driver import (
    Reply,
    Zygotes,
    batches_of,
    echo_command,
    exchange,
    numbers,
    raw_exchange,
    requests,
    running_pool,
    split,
)

from updraft.v1 import exchange_pb2
from updraft_server.ipc.frame_stream import PeerClosedError
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.pool.interface import until
from updraft_server.pool.pool import Pool

SCHEMA = numbers(0).schema
PROTOCOL = exchange_pb2.ERROR_KIND_PROTOCOL
Frame = tuple[bytes, Any, Any]


async def outcome(
    zygotes: Zygotes, frames: list[Frame], schema: pa.Schema | bytes = SCHEMA, command: Any = None
) -> Reply:
    async with running_pool(zygotes) as pool:
        return await raw_exchange(pool, schema, frames, command or echo_command())


def sequence(number: int) -> bytes:
    return exchange_pb2.RequestMetadata(sequence=number).SerializeToString()


def finish(batches: int, rows: int) -> Frame:
    counts = exchange_pb2.Finish(batches=batches, rows=rows)
    return exchange_pb2.RequestMetadata(finish=counts).SerializeToString(), b"", b""


def data(batch: pa.RecordBatch) -> tuple[Any, Any]:
    return split(batch.serialize())


def _written(batch: pa.RecordBatch, **options: Any) -> tuple[Any, Any]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    return split(reader.read_next_message().serialize())


ONE = numbers(2)
WRONG: dict[str, tuple[list[Frame], str]] = {
    "a gap": ([(sequence(2), *data(ONE))], "batch 2 came where 1 was expected"),
    "a repeat": ([(sequence(1), *data(ONE)), (sequence(1), *data(ONE))], "batch 1 came where 2 was expected"),
    "no number": ([(b"", *data(ONE))], "neither a sequence number nor finish"),
    "a keepalive with data": (
        [
            (exchange_pb2.RequestMetadata(keep_alive=exchange_pb2.KeepAlive()).SerializeToString(), *data(ONE)),
            finish(0, 2),
        ],
        "neither a sequence number nor finish",
    ),
    "an artifact with data": (
        [
            (exchange_pb2.RequestMetadata(artifact=exchange_pb2.ArtifactPart()).SerializeToString(), *data(ONE)),
            finish(0, 2),
        ],
        "neither a sequence number nor finish",
    ),
    "garbage for metadata": ([(b"\xff\xff\xff", *data(ONE))], "not a RequestMetadata"),
    "no finish": ([(sequence(1), *data(ONE))], "without finish"),
    "wrong batches": ([(sequence(1), *data(ONE)), finish(2, 2)], "counts 2 batches"),
    "wrong rows": ([(sequence(1), *data(ONE)), finish(1, 3)], "3 rows"),
    "data after finish": ([finish(0, 0), (sequence(1), *data(ONE))], "after finish"),
    "finish with data": ([(finish(1, 2)[0], *data(ONE))], "must have no Arrow data"),
    "an empty batch": ([(sequence(1), b"", b"")], "no Arrow data"),
    "a second schema": ([(sequence(1), *split(SCHEMA.serialize()))], "a second schema"),
    "another schema": ([(sequence(1), *data(pa.record_batch([[1], [2]], names="ab")))], "2 arrays where its schema"),
    "compression": ([(sequence(1), *_written(numbers(1000), compression="zstd"))], "compressed"),
    "a cut body": ([(sequence(1), data(ONE)[0], data(ONE)[1][:8])], "not an Arrow batch"),
    "garbage": ([(sequence(1), b"garbage!", b"more")], "not an Arrow batch"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_client_that_breaks_the_protocol_is_told_how(zygotes: Zygotes, name: str) -> None:
    frames, words = WRONG[name]
    reply = await outcome(zygotes, frames)
    assert reply.ending is FrameKind.FAILED
    assert reply.error.kind == PROTOCOL
    assert words in reply.error.message


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (b"", "no Arrow schema"),
        (b"garbage!", "not an Arrow schema"),
        (bytes(data(ONE)[0]), "not an Arrow schema"),
        (pa.schema([("c", pa.dictionary(pa.int8(), pa.string()))]), "dictionary-encoded"),
        (pa.schema([("c", pa.list_(pa.dictionary(pa.int8(), pa.string())))]), "dictionary-encoded"),
    ],
)
async def test_a_first_message_without_a_fit_schema_is_refused(
    zygotes: Zygotes, schema: pa.Schema | bytes, words: str
) -> None:
    reply = await outcome(zygotes, [finish(0, 0)], schema)
    assert reply.error.kind == PROTOCOL
    assert words in reply.error.message


async def test_offsets_that_point_outside_are_found_before_the_function_runs(zygotes: Zygotes) -> None:
    strings = pa.array(["aa", "bb", "cc"])
    offsets = pa.array([0, -4, 100, 6], pa.int32()).buffers()[1]
    broken = pa.RecordBatch.from_arrays(
        [pa.Array.from_buffers(pa.string(), 3, [None, offsets, strings.buffers()[2]])], ["_0"]
    )
    reply = await outcome(zygotes, [(sequence(1), *data(broken))], broken.schema)
    assert reply.error.kind == PROTOCOL


async def test_an_unknown_function_is_not_found_and_the_known_are_named(zygotes: Zygotes) -> None:
    command = echo_command()
    command.registered.name = "nothing"
    reply = await outcome(zygotes, [finish(0, 0)], command=command)
    assert reply.error.kind == exchange_pb2.ERROR_KIND_FUNCTION_NOT_FOUND
    assert "echo" in reply.error.message


async def test_a_payload_that_is_no_message_is_the_clients_error(zygotes: Zygotes) -> None:
    command = exchange_pb2.ExchangeCommand(session=exchange_pb2.SessionFunction(eval_type=250), payload=b"\xff")
    reply = await outcome(zygotes, [finish(0, 0)], command=command)
    assert reply.error.kind == PROTOCOL
    assert "not a SessionPayload" in reply.error.message


async def test_plain_flight_brings_no_metadata_and_the_worker_counts_for_the_front(zygotes: Zygotes) -> None:
    sent = batches_of([2, 3])
    async with running_pool(zygotes) as pool:
        frames = [(b"", *data(batch)) for batch in sent]
        reply = await raw_exchange(pool, SCHEMA, frames, None, plain_function="echo")
    assert reply.batches == [(1, sent[0]), (2, sent[1])]
    # Sent only after the first batch is done, because a front would wait for its client.
    assert reply.credits == []
    assert (reply.finish, reply.ending) == (None, FrameKind.DONE)


async def test_plain_flight_learns_the_schema_even_of_no_batch(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        reply = await raw_exchange(pool, SCHEMA, [], None, plain_function="echo")
    assert (reply.schema, reply.batches, reply.ending) == (SCHEMA, [], FrameKind.DONE)


async def test_limits_hold_before_anything_is_allocated(tmp_path: Any) -> None:
    limited = Zygotes(tmp_path, WorkerSettings(max_message_bytes=4096, max_batch_rows=100, max_command_bytes=8192))
    try:
        large = await outcome(limited, requests([numbers(1000)]))
        many = await outcome(
            limited, requests([pa.record_batch([pa.nulls(101)], ["n"])]), pa.schema([("n", pa.null())])
        )
        command = echo_command()
        command.payload = bytes(10_000)
        long = await outcome(limited, [finish(0, 0)], command=command)
    finally:
        limited.stop()
    for reply, words in ((large, "the limit is 4096"), (many, "101 rows"), (long, "the command has")):
        assert reply.error.kind == exchange_pb2.ERROR_KIND_LIMIT
        assert words in reply.error.message


async def test_a_pool_without_leave_runs_no_session_function(tmp_path: Any) -> None:
    from pyspark.sql.types import LongType
    from session_commands import session_command, udf

    closed = Zygotes(tmp_path, WorkerSettings())
    try:
        reply = await outcome(closed, [finish(0, 0)], command=session_command(250, udf(lambda x: x, LongType())))
    finally:
        closed.stop()
    assert reply.error.kind == exchange_pb2.ERROR_KIND_FUNCTION_REFUSED


def _mutations(seed: int, count: int) -> Iterator[tuple[pa.Schema, list[Frame]]]:
    """Yield streams of several types with bytes changed in header or body."""
    choose = random.Random(seed)
    batch = pa.record_batch(
        {
            "number": pa.array([1, None, 3]),
            "text": pa.array(["a", "bb", None]),
            "view": pa.array(["short", "longer than twelve bytes", None], pa.string_view()),
            "list": pa.array([[1], [], [2, 3]]),
            "struct": pa.array([{"x": 1}, None, {"x": 2}]),
            "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
            "decimal": pa.array([None, None, None], pa.decimal128(10, 2)),
        }
    )
    for _ in range(count):
        header, body = map(bytearray, data(batch))
        for _ in range(choose.randint(1, 6)):
            target = choose.choice([header, body])
            target[choose.randrange(len(target))] = choose.choice([0, 1, 0x7F, 0x80, 0xFF, choose.randrange(256)])
        yield batch.schema, [(sequence(1), bytes(header), bytes(body)), finish(1, 3)]


async def test_mutated_streams_kill_nothing_but_at_most_their_own_exchange(zygotes: Zygotes) -> None:
    from pyspark.sql.types import StringType
    from session_commands import session_command, udf

    def use_everything(*columns):
        import pyarrow as pa

        return pa.array([str([column[row].as_py() for column in columns]) for row in range(len(columns[0]))])

    command = session_command(250, udf(use_everything, StringType(), offsets=range(7)))
    kinds = set()
    async with running_pool(zygotes, workers=2) as pool:
        for schema, frames in _mutations(seed=1, count=150):
            await until(pool, lambda: pool.idle > 0)
            try:
                reply = await raw_exchange(pool, schema, frames, command)
            except PeerClosedError:
                pytest.fail(f"a worker died of {frames[0]!r}")
            kinds.add(reply.error.kind if reply.error else 0)
        await _answers(pool)
    assert {0, PROTOCOL} <= kinds <= {0, PROTOCOL, exchange_pb2.ERROR_KIND_LIMIT, exchange_pb2.ERROR_KIND_USER}


async def _answers(pool: Pool) -> None:
    await until(pool, lambda: pool.idle > 0)
    assert (await exchange(pool, batches_of([1]))).error is None
