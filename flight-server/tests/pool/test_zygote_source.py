# SPDX-License-Identifier: Apache-2.0
"""Control connection of the front to a zygote: only one at a time, and a new one after a loss."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from updraft_server.ipc.control import WorkersSecret, connect_both, connected, new_secret, packet_pair
from updraft_server.pool import zygote_source
from updraft_server.pool.zygote_source import ControlConnection

_HANG_SECONDS = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "f.sock"


@pytest.fixture
def listener(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen()
        yield listening


SECRET = new_secret()
Make = Callable[..., ControlConnection]


@pytest.fixture
async def made() -> AsyncIterator[Make]:
    sources: list[ControlConnection] = []

    def make(*arguments: Any) -> ControlConnection:
        sources.append(ControlConnection(*arguments))
        return sources[-1]

    yield make
    for source in sources:
        source.close()


@pytest.fixture
def known() -> Iterator[WorkersSecret]:
    made = WorkersSecret.made(somebody=False)
    yield made
    os.close(made.descriptor)


def connection_to(path: Path, secret: bytes = SECRET) -> socket.socket:
    control = connected(path, secret)
    assert control is not None
    return control


def started_zygote(control: socket.socket) -> socket.socket:
    """Return the zygote's end of the connection that a supervisor hands over."""
    zygote, zygotes_door = packet_pair()
    with zygote, zygotes_door:
        connect_both(zygote, control, 0)
        _, descriptors, _, _ = socket.recv_fds(zygotes_door, 32, 1)
    return socket.socket(fileno=descriptors[0])


async def end_of(connection: socket.socket) -> bytes:
    connection.setblocking(False)
    with contextlib.suppress(ConnectionResetError):
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(connection, 1), _HANG_SECONDS)
    # The peer closed with unread data.
    return b""


async def until_anybody(known: WorkersSecret) -> None:
    while not known.is_anybody:  # noqa: ASYNC110
        # A timer of the tested code changes this and sends no event.
        await asyncio.sleep(0.01)


async def test_a_second_connection_is_closed_at_once_and_the_first_one_lives(
    listener: socket.socket, known: WorkersSecret, path: Path, made: Make
) -> None:
    source = made(listener, known)
    with connection_to(path) as first, started_zygote(first) as zygote, await source.next() as given:
        with connection_to(path) as second:
            assert await end_of(second) == b""
        zygote.send(b"hello")
        assert given.recv(5) == b"hello"


async def test_the_end_of_the_connection_ends_the_zygotes_unasked(
    listener: socket.socket, known: WorkersSecret, path: Path, made: Make
) -> None:
    source = made(listener, known)
    first = connection_to(path)
    with started_zygote(first) as zygote, await source.next() as given:
        # The zygote's end stays open: only the loss of PID 1 ends the connection.
        first.close()
        assert await end_of(given) == b""
        assert await end_of(zygote) == b""
    with connection_to(path) as successor, started_zygote(successor), await source.next():
        pass


async def test_a_successor_is_taken_that_comes_together_with_the_end_of_its_predecessor(
    listener: socket.socket, known: WorkersSecret, path: Path, made: Make
) -> None:
    source = made(listener, known)
    with connection_to(path) as first, started_zygote(first), await source.next():
        first.close()
        with connection_to(path) as successor, started_zygote(successor), await source.next():
            pass


async def test_an_older_zygote_that_nobody_asked_for_gives_way_to_its_successor(made: Make) -> None:
    supervisors_end, fronts_end = packet_pair()
    with supervisors_end:
        source = made(fronts_end)
        older, newer = started_zygote(supervisors_end), started_zygote(supervisors_end)
        with older, newer, await source.next() as given:
            newer.send(b"new")
            assert given.recv(3) == b"new"
            assert await end_of(older) == b""


async def test_a_supervisor_that_is_gone_for_good_is_told_apart(made: Make) -> None:
    supervisors_end, fronts_end = packet_pair()
    source = made(fronts_end)
    supervisors_end.close()
    with pytest.raises(OSError, match=r"has not connected|has gone away"):
        await source.next()
    with pytest.raises(ConnectionResetError, match="the supervisor has gone away"):
        await source.next()


async def test_who_comes_to_the_next_front_has_to_be_known(
    listener: socket.socket, known: WorkersSecret, path: Path, made: Make
) -> None:
    """User code that connects before the next front does is refused."""
    assert known.is_known(SECRET)
    with connection_to(path, new_secret()) as hostile, connection_to(path, b"") as silent:
        source = made(listener, known)
        with connection_to(path) as own, started_zygote(own) as zygote, await source.next() as given:
            zygote.send(b"own")
            assert given.recv(3) == b"own"
            assert await end_of(hostile) == b""
            assert await end_of(silent) == b""


async def test_one_who_says_nothing_keeps_nobody_out(
    listener: socket.socket, known: WorkersSecret, path: Path, made: Make
) -> None:
    source = made(listener, known)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(str(path))
        with connection_to(path) as own, started_zygote(own), await source.next():
            assert await end_of(silent) == b""


async def test_a_new_side_is_believed_once_the_old_one_has_had_its_time(
    listener: socket.socket, known: WorkersSecret, path: Path, monkeypatch: pytest.MonkeyPatch, made: Make
) -> None:
    monkeypatch.setattr(zygote_source, "_KNOWN_SECONDS", 0.05)
    assert known.is_known(new_secret())
    assert not known.is_known(SECRET)
    source = made(listener, known)
    # The zygote accepts it only after the old front's time is over.
    await asyncio.wait_for(until_anybody(known), _HANG_SECONDS)
    with connection_to(path) as new, started_zygote(new), await source.next():
        assert known.is_known(SECRET)
