# SPDX-License-Identifier: Apache-2.0
"""Attempts to send the front false messages. The client must see nothing but a failure of this exchange."""

from __future__ import annotations

from typing import Any

from tests.attacks.attempts import Attempts

ATTEMPTS = Attempts()


def say(data: bytes) -> None:
    """Write to the exchange's socket before the worker's own messages, which breaks the exchange."""
    import os

    rest = memoryview(data)
    while rest:
        rest = rest[os.write(3, rest) :]


@ATTEMPTS
def nothing_that_can_be_read(target: Any) -> Any:
    say(bytes(range(256)) * 16)


@ATTEMPTS
def only_zeros(target: Any) -> Any:
    say(bytes(4096))


@ATTEMPTS
def a_frame_without_end(target: Any) -> Any:
    say(b"\xff" * 64)


@ATTEMPTS
def that_it_is_done(target: Any) -> Any:
    from updraft_server.ipc.frames import FrameKind, encode_header

    say(encode_header(FrameKind.DONE))


@ATTEMPTS
def that_it_is_ready_again(target: Any) -> Any:
    from updraft_server.ipc.frames import FrameKind, encode_header

    say(encode_header(FrameKind.READY))


@ATTEMPTS
def that_it_failed_in_a_way_of_its_own(target: Any) -> Any:
    from updraft_server.ipc.frames import FrameKind, encode_header

    say(encode_header(FrameKind.FAILED, 3) + b"\xff\xff\xff")


@ATTEMPTS
def that_it_is_replaced(target: Any) -> Any:
    from updraft_server.ipc.frames import FrameKind, encode_header

    say(encode_header(FrameKind.RETIRED))


@ATTEMPTS
def that_it_loads_for_ever(target: Any) -> Any:
    from updraft_server.ipc.frames import FrameKind, encode_header
    from updraft_server.ipc.load import Load

    load = Load("functions", "slow").encode()
    say(encode_header(FrameKind.LOADING, len(load)) + load)


@ATTEMPTS
def what_only_a_front_says(target: Any) -> Any:
    from updraft_server.ipc.frames import FrameKind, encode_header

    say(encode_header(FrameKind.COMMAND, 4) + b"null")


@ATTEMPTS
def a_message_of_a_terabyte(target: Any) -> Any:
    from updraft_server.ipc.frames import FrameKind, encode_header

    say(encode_header(FrameKind.MESSAGE, 0, 0, 1 << 40))


@ATTEMPTS
def metadata_that_cannot_be_read(target: Any) -> Any:
    from updraft_server.ipc.frames import FrameKind, encode_header

    say(encode_header(FrameKind.MESSAGE, 8) + bytes([8]) + b"\xff" * 7)


@ATTEMPTS
def metadata_that_swells_when_it_is_parsed(target: Any) -> Any:
    from updraft_server.ipc.frames import FrameKind, encode_header

    empty_lines = b"\x32\x00" * (15 << 20)
    say(encode_header(FrameKind.MESSAGE, len(empty_lines)) + empty_lines)


@ATTEMPTS
def an_error_of_megabytes(target: Any) -> Any:
    from updraft.v1.exchange_pb2 import Error, ErrorKind
    from updraft_server.ipc.frames import FrameKind, encode_header

    line = '\x1b[2J\n{"event": "forged"}\r'
    long = line * 400_000
    error = Error(kind=ErrorKind.ERROR_KIND_USER, message=long, traceback=long, exception_class=long)
    failed = error.SerializeToString()
    say(encode_header(FrameKind.FAILED, len(failed)) + failed)


@ATTEMPTS
def that_nobody_knows_who_calls(target: Any) -> Any:
    from updraft.v1.exchange_pb2 import Error, ErrorKind
    from updraft_server.ipc.frames import FrameKind, encode_header

    failed = Error(kind=ErrorKind.ERROR_KIND_UNAUTHENTICATED, message="forged").SerializeToString()
    say(encode_header(FrameKind.FAILED, len(failed)) + failed)


@ATTEMPTS
def that_another_has_killed_it(target: Any) -> Any:
    from updraft.v1.exchange_pb2 import Error, ErrorKind
    from updraft_server.ipc.frames import FrameKind, encode_header

    failed = Error(kind=ErrorKind.ERROR_KIND_WORKER, message="forged").SerializeToString()
    say(encode_header(FrameKind.FAILED, len(failed)) + failed)


@ATTEMPTS
def that_it_has_finished_twice(target: Any) -> Any:
    from updraft.v1.exchange_pb2 import Finish, ReplyMetadata
    from updraft_server.ipc.frames import FrameKind, encode_header

    finish = ReplyMetadata(finish=Finish(batches=99, rows=(1 << 64) - 1)).SerializeToString()
    say((encode_header(FrameKind.MESSAGE, len(finish)) + finish) * 2 + encode_header(FrameKind.DONE))


@ATTEMPTS
def that_a_reply_of_exabytes_begins(target: Any) -> Any:
    from updraft.v1.exchange_pb2 import BatchPart, ReplyMetadata
    from updraft_server.ipc.frames import FrameKind, encode_header

    for size in (1 << 60, (1 << 64) - 1, 0):
        part = ReplyMetadata(part=BatchPart(body_bytes=size, offset=size)).SerializeToString()
        say(encode_header(FrameKind.MESSAGE, len(part), 0, 1) + part + b"x")


@ATTEMPTS
def parts_of_a_reply_without_end(target: Any) -> Any:
    from updraft.v1.exchange_pb2 import BatchPart, ReplyMetadata
    from updraft_server.ipc.frames import FrameKind, encode_header

    size = 16 << 20
    for number in range(1 << 30):
        part = ReplyMetadata(part=BatchPart(body_bytes=1 << 62, offset=number * size)).SerializeToString()
        say(encode_header(FrameKind.MESSAGE, len(part), 0, size) + part + bytes(size))


@ATTEMPTS
def that_it_has_finished_inside_a_reply(target: Any) -> Any:
    from updraft.v1.exchange_pb2 import BatchPart, Finish, ReplyMetadata
    from updraft_server.ipc.frames import FrameKind, encode_header

    part = ReplyMetadata(part=BatchPart(body_bytes=2, offset=0)).SerializeToString()
    finish = ReplyMetadata(finish=Finish()).SerializeToString()
    say(encode_header(FrameKind.MESSAGE, len(part), 0, 1) + part + b"x")
    say(encode_header(FrameKind.MESSAGE, len(finish)) + finish + encode_header(FrameKind.DONE))
