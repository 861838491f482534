# SPDX-License-Identifier: Apache-2.0
"""`make fuzz`: hostile bytes against everything that reads what a client sent.

Valid messages are mutated and read; what they may raise is the client's error, and nothing else. What passes a
worker's checks is then used, as a function would use it. A crash ends this process: run the seed that it printed again.
"""

import argparse
import contextlib
import faulthandler
import random
import socket
import sys
import time
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from updraft.arrow_decoder import ArrowDecoder
from updraft.errors import UpdraftError
from updraft.flight_data import join_flight_data, split_flight_data
from updraft.protocol import PROTOCOL_VERSION
from updraft.v1.exchange_pb2 import ExchangeCommand, Finish, Owner, RegisteredFunction, RequestMetadata, TaskIdentity
from updraft_server.front.request import parse_request
from updraft_server.ipc.frames import HEADER_BYTES, FrameError, FrameKind, decode_header, encode
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.worker.channel import Channel, ReceivedFrame

_BATCH = pa.RecordBatch.from_pydict(
    {
        "number": pa.array([1, None, 3], pa.int64()),
        "text": pa.array(["one", None, "dreißig"]),
        "bytes": pa.array([b"", b"\x00", None], pa.large_binary()),
        "list": pa.array([[1, 2], [], None], pa.list_(pa.int32())),
        "struct": pa.array([{"a": "x", "b": [0.5]}, None, {"a": None, "b": None}]),
        "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int16())),
        "decimal": pa.array([1, None, 2], pa.decimal128(20, 2)),
        "flag": pa.array([True, None, False]),
    }
)
_SCHEMA_MESSAGE = pa.ipc.read_message(_BATCH.schema.serialize())
_BATCH_MESSAGE = pa.ipc.read_message(_BATCH.serialize())
_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, cut out, doubled or cut off."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        if not changed:
            break
        place = chance.randrange(len(changed))
        match chance.randrange(6):
            case 0:
                changed[place] ^= 1 << chance.randrange(8)
            case 1:
                changed[place] = chance.choice(_INTERESTING)
            case 2:
                changed[place : place + 4] = chance.choice((-1, 2**31 - 1, -(2**31), 1)).to_bytes(
                    4, "little", signed=True
                )
            case 3:
                del changed[place : place + chance.randrange(1, 9)]
            case 4:
                changed[place:place] = changed[place : place + chance.randrange(1, 33)]
            case _:
                del changed[place:]
    return bytes(changed)


def received(header: bytes, body: bytes) -> ReceivedFrame:
    """A frame as a worker takes it from its socket."""
    front, worker = socket.socketpair()
    with front, worker:
        for piece in encode(FrameKind.BATCH, b"", header, body):
            front.sendall(piece)
        channel = Channel(worker)
        return channel.receive_fields(channel.receive_header())


def arrow_input(chance: random.Random) -> None:
    """A worker's schema and batch, one of them changed; what is accepted is used."""
    pieces = [
        _SCHEMA_MESSAGE.metadata.to_pybytes(),
        _BATCH_MESSAGE.metadata.to_pybytes(),
        _BATCH_MESSAGE.body.to_pybytes(),
    ]
    changed = chance.choice((0, 1, 1, 2, 2, 2))
    pieces[changed] = mutated(pieces[changed], chance)
    max_batch_rows = WorkerSettings().max_batch_rows
    with contextlib.suppress(UpdraftError):
        schema = received(pieces[0], b"").message
        decoder = ArrowDecoder.announced_by(schema, "the first message", max_batch_rows=max_batch_rows)
        batch = decoder.decode_batch(received(pieces[1], pieces[2]).message, sequence=1)
        _use(batch)


def _use(batch: pa.RecordBatch) -> None:
    """What would read outside of a batch that was not checked."""
    for column in batch.columns:
        column.take(pa.array(range(len(column)), pa.int64()))
        if pa.types.is_string(column.type):
            pc.utf8_upper(column)
        if len(column) < 1000:
            # What Python cannot say, such as a date in year 300,000, is the function's own error.
            with contextlib.suppress(ValueError, OverflowError, ArithmeticError):
                column.to_pylist()


def frames(chance: random.Random) -> None:
    """The header of a frame between front and worker."""
    header = b"".join(bytes(piece) for piece in encode(FrameKind.MESSAGE, b"m", b"h" * 300, b"b" * 9))[:HEADER_BYTES]
    with contextlib.suppress(FrameError):
        decode_header(mutated(header, chance))


def flight_data(chance: random.Random) -> None:
    """The first message and a later one, as the front reads them."""
    command = ExchangeCommand(
        protocol_version=PROTOCOL_VERSION,
        registered=RegisteredFunction(name="echo"),
        task=TaskIdentity(owner=Owner(application_id="app"), stage_id=2, task_attempt_id=4),
    ).SerializeToString()
    descriptor = b"\x08\x02\x12" + bytes([len(command)]) + command
    request = (
        b"\x0a" + bytes([len(descriptor)]) + descriptor + join_flight_data(memoryview(b"schema"), b"", memoryview(b""))
    )
    finish = RequestMetadata(finish=Finish(batches=1, rows=2)).SerializeToString()
    later = join_flight_data(memoryview(b"header"), finish, memoryview(b"body" * 50))
    with contextlib.suppress(UpdraftError):
        parse_request(split_flight_data(mutated(request, chance)))
    with contextlib.suppress(UpdraftError):
        split_flight_data(mutated(later, chance))


TARGETS: Mapping[str, Callable[[random.Random], None]] = {
    "arrow input": arrow_input,
    "frames": frames,
    "flight data": flight_data,
}


def main() -> int:
    """Read hostile bytes for a time; 1 when something raised what it must not."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    options = parser.parse_args()
    faulthandler.enable()
    _say(f"seed {options.seed}")
    for name, target in TARGETS.items():
        # Each input has a generator of its own: the one that failed can be had again without those before it.
        runs, until = 0, time.monotonic() + options.seconds / len(TARGETS)
        while time.monotonic() < until:
            try:
                target(random.Random(f"{options.seed} {name} {runs}"))
            except Exception as error:
                _say(f"{name}: input {runs} of seed {options.seed} raised {type(error).__name__}: {error}")
                return 1
            runs += 1
        _say(f"{name}: {runs} inputs")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
