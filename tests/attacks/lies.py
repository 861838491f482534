# SPDX-License-Identifier: Apache-2.0
"""Attempts to say to the front what is not so. Whatever a client hears of it is a failure of this exchange alone."""

from __future__ import annotations

from typing import Any

from tests.attacks.attempts import Attempts

ATTEMPTS = Attempts()


def say(data: bytes) -> None:
    """Write to the exchange's socket, in front of what the worker will say; the exchange breaks."""
    import os

    os.write(3, data)


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
