# SPDX-License-Identifier: Apache-2.0
"""Dictionaries of plain Flight in a real worker: from honest clients, and from clients that try to fill its memory."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pool_driver import Reply, Zygotes, raw_exchange, running_pool, split

from updraft.v1.exchange_pb2 import ERROR_KIND_LIMIT, ERROR_KIND_PROTOCOL
from updraft_server.ipc.frames import FrameKind

MIB = 1 << 20
Frame = tuple[bytes, Any, Any]


def stream(*batches: pa.RecordBatch, **options: Any) -> list[Frame]:
    """Return the frames after the schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    _, *messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return [(b"", *split(message.serialize())) for message in messages]


def coded(indexes: Any, values: Sequence[str]) -> pa.RecordBatch:
    column = pa.DictionaryArray.from_arrays(pa.array(indexes, pa.int8()), pa.array(values), safe=False)
    return pa.record_batch({"x": column})


async def outcome(zygotes: Zygotes, schema: pa.Schema, frames: list[Frame], function: str = "echo") -> Reply:
    limits: dict[str, Any] = {"max_batch_bytes": 16 * MIB, "max_batch_bytes_setting": "--max-batch-bytes of the pool"}
    async with running_pool(zygotes) as pool:
        return await raw_exchange(pool, schema, frames, None, plain_function=function, **limits)


@pytest.mark.parametrize("function", ["echo", "builtin_echo"])
@pytest.mark.parametrize("options", [{}, {"emit_dictionary_deltas": True}], ids=["replaced", "deltas"])
async def test_a_function_sees_the_values(zygotes: Zygotes, options: dict[str, Any], function: str) -> None:
    batches = [coded([0, None, 0], ["a"]), coded([1, 0], ["a", "b"]), coded([2, 2], ["a", "b", "c"])]
    reply = await outcome(zygotes, batches[0].schema, stream(*batches, **options), function)
    assert (reply.error, reply.ending) == (None, FrameKind.DONE)
    assert reply.table.column(0).type == pa.string()
    assert [batch.column(0).to_pylist() for _, batch in reply.batches] == [["a", None, "a"], ["b", "a"], ["c", "c"]]
    assert [number for number, _ in reply.batches] == [1, 2, 3]


async def test_the_values_decide_whether_a_column_is_an_argument(zygotes: Zygotes) -> None:
    numbers = pa.record_batch({"x": pa.array([1, 2]).dictionary_encode()})
    reply = await outcome(zygotes, numbers.schema, stream(numbers), "builtin_echo")
    assert reply.error.kind == ERROR_KIND_PROTOCOL
    assert "argument 'text' of function 'builtin_echo' is string, not int64" in reply.error.message


HONEST = stream(coded([0], ["a"]))
OTHER_ID = stream(pa.record_batch({"n": pa.array(["n"]).dictionary_encode(), "x": pa.array(["a"]).dictionary_encode()}))
ONE = coded([0], ["a"]).schema
HOSTILE = {
    "a value a million times": (
        stream(coded([0] * 1_000_000, ["x" * MIB])),
        ERROR_KIND_LIMIT,
        "once its dictionaries are decoded, the limit is 16777216: send smaller batches, or raise --max-batch-bytes",
    ),
    "dictionaries without end": (HONEST[:1] * 100, ERROR_KIND_LIMIT, "more than 16 dictionaries came before batch 1"),
    "dictionaries that grow": (
        stream(*[coded([0], ["x" * 5 * MIB] * (number + 1)) for number in range(4)], emit_dictionary_deltas=True),
        ERROR_KIND_LIMIT,
        "brings all dictionaries to",
    ),
    "an index beyond": (stream(coded([7], ["a"])), ERROR_KIND_PROTOCOL, "Index 7 out of bounds"),
    "an index below": (stream(coded([-1], ["a"])), ERROR_KIND_PROTOCOL, "Index -1 out of bounds"),
    "no dictionary": (HONEST[1:], ERROR_KIND_PROTOCOL, "dictionary 0 has not arrived"),
    "a dictionary of nothing": (OTHER_ID[1:2], ERROR_KIND_PROTOCOL, "has the id 1, which no column uses"),
    "a dictionary cut short": ([(b"", HONEST[0][1], b"")], ERROR_KIND_PROTOCOL, "a dictionary before batch 1"),
    "a dictionary of noise": ([(b"", HONEST[0][1], b"\xff" * 64)], ERROR_KIND_PROTOCOL, "a dictionary before batch 1"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_client_that_means_harm_is_told_what_is_wrong(zygotes: Zygotes, name: str) -> None:
    frames, kind, words = HOSTILE[name]
    reply = await outcome(zygotes, ONE, frames)
    assert (reply.ending, reply.error.kind) == (FrameKind.FAILED, kind)
    assert words in reply.error.message
