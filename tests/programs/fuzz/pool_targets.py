# SPDX-License-Identifier: Apache-2.0
"""Fuzz targets for input that a pool reads from its clients, from its workers and from archives."""

from __future__ import annotations

import contextlib
import io
import platform
import random
import socket
import tarfile
import tempfile

import pyarrow as pa
import pyarrow.compute as pc
import pyspark

from tests.programs.fuzz.arrow import changed_batch, changed_dictionaries
from tests.programs.fuzz.target import Pieces, Target, mutated, number
from updraft.arrow_decoder import ArrowDecoder
from updraft.arrow_layout import Text
from updraft.arrow_metadata import is_dictionary
from updraft.dictionary_decoder import DecodedLimit, DictionaryDecoder
from updraft.errors import UpdraftError
from updraft.flight_data import join_flight_data, split_flight_data
from updraft.protocol import PROTOCOL_VERSION
from updraft.v1 import exchange_pb2 as wire
from updraft.v1.control_pb2 import FunctionDescription
from updraft_server.front.request.capabilities import Capabilities
from updraft_server.front.request.request import parse_request, resolve
from updraft_server.ipc.frames import HEADER_BYTES, FrameError, FrameKind, decode_header, encode
from updraft_server.ipc.packet_codec import PacketError
from updraft_server.ipc.unpacking import RoomRequest, UnpackBounds, UnpackVerdict
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.ipc.zygote_packets import (
    Claim,
    Exited,
    Fork,
    Forked,
    ForkFailed,
    Kill,
    Measure,
    Measured,
)
from updraft_server.ipc.zygote_packets import decode as decode_packet
from updraft_server.ipc.zygote_packets import encode as encode_packet
from updraft_server.unpacker.archive import RefusedArchiveError, unpack
from updraft_server.worker.channel import Channel, ReceivedFrame

_PYTHON_VERSION = ".".join(platform.python_version_tuple()[:2])
_CAPABILITIES = Capabilities(
    functions=(FunctionDescription(name="echo", version="1"),),
    session_functions_allowed=True,
    python_version=platform.python_version(),
    pyspark_version=pyspark.__version__,
)
_BOUNDS = UnpackBounds(
    total_bytes=1 << 20,
    members=100,
    header_bytes=1 << 16,
    name_bytes=1024,
    names_bytes=1 << 16,
    depth=64,
    memory_bytes=1 << 28,
    cpu_seconds=10,
    block_bytes=4096,
    entry_bytes=16384,
    room_bytes=1 << 16,
)
_PACKETS = (
    Claim(["a", "b"]),
    Fork(7),
    Forked(7, "a", 1),
    ForkFailed(7, "no memory"),
    Kill("a"),
    Measure(8, ["a"]),
    Measured(8, {}),
    Exited("a", -9),
)


def _frame_header(chance: random.Random) -> Pieces:
    header = b"".join(bytes(piece) for piece in encode(FrameKind.MESSAGE, b"m", b"h" * 300, b"b" * 9))[:HEADER_BYTES]
    return [mutated(header, chance)]


def _read_frame_header(pieces: Pieces) -> None:
    with contextlib.suppress(FrameError):
        decode_header(pieces[0])


def _flight_messages(chance: random.Random) -> Pieces:
    """Return the first message of an exchange and a later message."""
    descriptor = b"\x08\x02\x12" + _delimited(_registered_command().SerializeToString())
    first = b"\x0a" + _delimited(descriptor) + join_flight_data(memoryview(b"schema"), b"", memoryview(b""))
    finish = wire.RequestMetadata(finish=wire.Finish(batches=1, rows=2)).SerializeToString()
    later = join_flight_data(memoryview(b"header"), finish, memoryview(b"body" * 50))
    return [mutated(first, chance), mutated(later, chance)]


def _read_flight_messages(pieces: Pieces) -> None:
    with contextlib.suppress(UpdraftError):
        parse_request(split_flight_data(pieces[0]))
    with contextlib.suppress(UpdraftError):
        fields = split_flight_data(pieces[1])
        with contextlib.suppress(Exception):
            # The reader of the metadata raises ProtocolError instead of Protobuf's own error.
            wire.RequestMetadata.FromString(bytes(fields.app_metadata))


def _command(chance: random.Random) -> Pieces:
    """Return a command with fields at their limits; in half of the commands, change some bytes too."""
    command = _registered_command() if chance.random() < 0.3 else _session_command(chance)
    limits = command.limits
    for field in limits.DESCRIPTOR.fields:
        if chance.random() < 0.2:
            bits = 32 if "32" in str(field.cpp_type) or field.cpp_type == field.CPPTYPE_INT32 else 64
            with contextlib.suppress(ValueError):
                setattr(limits, field.name, number(chance, bits))
    command.task.owner.application_id = chance.choice(("app", "", "a" * 5000, "ü\n\x00"))
    encoded = command.SerializeToString()
    return [mutated(encoded, chance) if chance.random() < 0.5 else encoded]


def _read_command(pieces: Pieces) -> None:
    descriptor = b"\x08\x02\x12" + _delimited(pieces[0])
    with contextlib.suppress(UpdraftError):
        request = parse_request(split_flight_data(b"\x0a" + _delimited(descriptor)))
        request = resolve(request, _CAPABILITIES)
        # The front reads these fields before it asks for a worker.
        assert request.held_bytes >= 0
        assert request.log_context
        _ = request.task_key


def _registered_command() -> wire.ExchangeCommand:
    return wire.ExchangeCommand(
        protocol_version=PROTOCOL_VERSION,
        registered=wire.RegisteredFunction(name="echo"),
        task=wire.TaskIdentity(owner=wire.Owner(application_id="app"), stage_id=2, task_attempt_id=4),
    )


def _session_command(chance: random.Random) -> wire.ExchangeCommand:
    artifacts = [
        wire.Artifact(
            sha256=chance.randbytes(chance.choice((0, 31, 32, 32, 32, 33))),
            size_bytes=number(chance),
            broadcast_id=number(chance),
        )
        for _ in range(chance.randrange(4))
    ]
    return wire.ExchangeCommand(
        protocol_version=PROTOCOL_VERSION,
        session=wire.SessionFunction(
            python_version=_PYTHON_VERSION,
            spark_version=pyspark.__version__,
            eval_type=chance.choice((100, 200, 250, number(chance, 32))),
            artifacts=artifacts,
            python_includes=[chance.choice(("a.zip", "../a", "", "/a", "a/../../b"))],
            environment={"A": "b", chance.choice(("", "=", "\0", "LD_PRELOAD")): "x"},
        ),
        payload=b"payload",
        task=wire.TaskIdentity(stage_id=2, task_attempt_id=4),
    )


def _delimited(data: bytes) -> bytes:
    length, prefix = len(data), bytearray()
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(prefix) + bytes([length]) + data


def _read_arrow(pieces: Pieces) -> None:
    """Read a schema and a batch as a worker does; use an accepted batch as a function would."""
    for text in Text:
        with contextlib.suppress(UpdraftError):
            _use(_received_batch(pieces, text), text)


def _received_batch(pieces: Pieces, text: Text) -> pa.RecordBatch:
    schema, rows = _received(pieces[0], b"").message, WorkerSettings().max_batch_rows
    decoder = ArrowDecoder.announced_by(schema, "the first message", max_batch_rows=rows, text=text)
    return decoder.decode_batch(_received(pieces[1], pieces[2]).message, sequence=1)


def _read_dictionaries(pieces: Pieces) -> None:
    """Read a plain client's schema, dictionaries and batches as a worker does."""
    limit, rows = DecodedLimit(1 << 24, "--max-batch-bytes"), WorkerSettings().max_batch_rows
    with contextlib.suppress(UpdraftError):
        decoder = DictionaryDecoder.announced_by(
            _received(pieces[0], b"").message, "the first message", limit=limit, max_batch_rows=rows, text=Text.UTF_8
        )
        for header, body in zip(pieces[1::2], pieces[2::2], strict=True):
            message = _received(header, body).message
            if is_dictionary(memoryview(header)):
                decoder.add_dictionary(message, sequence=1)
            else:
                _use(decoder.decode_batch(message, sequence=1), Text.UTF_8)


def _received(header: bytes, body: bytes) -> ReceivedFrame:
    """Return a frame as a worker reads it from its socket."""
    front, worker = socket.socketpair()
    with front, worker:
        for piece in encode(FrameKind.BATCH, b"", header, body):
            front.sendall(piece)
        channel = Channel(worker)
        return channel.receive_fields(channel.receive_header())


def _use(batch: pa.RecordBatch, text: Text) -> None:
    """Use a batch in ways that would read beyond its buffers if the decoder had not checked them."""
    # PyArrow has no Python class for an interval of months, so the function receives this error.
    try:
        columns = batch.columns
    except KeyError:
        return
    for column in columns:
        # Some types do not support `take`, so the function receives this error.
        with contextlib.suppress(pa.ArrowNotImplementedError, pa.ArrowInvalid):
            column.take(pa.array(range(min(len(column), 1000)), pa.int64()))
        if pa.types.is_string(column.type):
            # For text that is not UTF-8, the function receives an error, unless the decoder has promised UTF-8.
            with contextlib.suppress(*[pa.ArrowInvalid] if text is Text.BYTES else []):
                pc.utf8_upper(column)
        if len(column) < 1000:
            # For values that Python cannot represent, such as a date in the year 300,000, the function receives an
            # error.
            with contextlib.suppress(ValueError, OverflowError, ArithmeticError):
                column.to_pylist()


def _archive(chance: random.Random) -> Pieces:
    """Return an archive with members of every kind. Most headers are changed, usually with a correct checksum."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=chance.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))) as tar:
        for member in range(chance.randrange(1, 5)):
            info = tarfile.TarInfo(chance.choice(("a", "a/b", "../c", "/d", "e" * 300, "ü", ".", "")) + str(member))
            info.type = chance.choice(
                (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)
            )
            info.linkname = chance.choice(("a", "../../x", "/etc/passwd", "a0", ""))
            data = chance.randbytes(chance.randrange(600)) if info.isreg() else b""
            info.size = len(data)
            if chance.random() < 0.3:
                info.pax_headers = {chance.choice(("size", "path", "GNU.sparse.map", "comment")): str(number(chance))}
            tar.addfile(info, io.BytesIO(data))
    data = file.getvalue()
    if chance.random() < 0.8:
        start = 512 * chance.randrange(max(1, len(data) // 512))
        block = bytearray(mutated(data[start : start + 512], chance)[:512].ljust(512, b"\0"))
        if chance.random() < 0.8:
            block[148:156] = b" " * 8
            block[148:156] = f"{sum(block):06o}\0 ".encode()
        data = data[:start] + bytes(block) + data[start + 512 :]
    return [data]


def _read_archive(pieces: Pieces) -> None:
    with tempfile.TemporaryDirectory(prefix="updraft-fuzz-") as directory, contextlib.suppress(RefusedArchiveError):
        unpack(io.BytesIO(pieces[0]), directory, _BOUNDS, lambda _room_bytes: None)


def _packet(chance: random.Random) -> Pieces:
    verdict = b"refused\n0\nis not an archive"
    return [mutated(encode_packet(chance.choice(_PACKETS)), chance), mutated(verdict, chance)]


def _read_packet(pieces: Pieces) -> None:
    with contextlib.suppress(PacketError):
        decode_packet(pieces[0])
    with contextlib.suppress(ValueError):
        RoomRequest.decode(pieces[1])
        UnpackVerdict.decode(pieces[1])


TARGETS = (
    Target("frames", _frame_header, _read_frame_header),
    Target("flight data", _flight_messages, _read_flight_messages),
    Target("commands", _command, _read_command),
    Target("archives", _archive, _read_archive),
    Target("arrow input", changed_batch, _read_arrow),
    Target("dictionaries", changed_dictionaries, _read_dictionaries),
    Target("packets", _packet, _read_packet),
)
