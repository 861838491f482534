# SPDX-License-Identifier: Apache-2.0
"""The front's end of the control connection: one at a time, and its loss."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from updraft_server.ipc.control import connected, introduce, packet_pair
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


def connection_to(path: Path) -> socket.socket:
    control = connected(path)
    assert control is not None
    return control


def started_zygote(control: socket.socket) -> socket.socket:
    """The zygote's end of what a supervisor hands over."""
    door, zygotes_door = packet_pair()
    with door, zygotes_door:
        introduce(door, control, 0)
        _, descriptors, _, _ = socket.recv_fds(zygotes_door, 32, 1)
    return socket.socket(fileno=descriptors[0])


async def end_of(connection: socket.socket) -> bytes:
    connection.setblocking(False)
    return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(connection, 1), _HANG_SECONDS)


async def test_a_second_connection_is_closed_at_once_and_the_first_one_lives(
    listener: socket.socket, path: Path
) -> None:
    source = ControlConnection(listener)
    with connection_to(path) as first, started_zygote(first) as zygote, await source.next() as given:
        with connection_to(path) as second:
            assert await end_of(second) == b""
        zygote.send(b"hello")
        assert given.recv(5) == b"hello"


async def test_the_end_of_the_connection_ends_the_zygotes_unasked(listener: socket.socket, path: Path) -> None:
    source = ControlConnection(listener)
    first = connection_to(path)
    with started_zygote(first) as zygote, await source.next() as given:
        # The zygote's end stays open: it is the loss of PID 1 that shows.
        first.close()
        assert await end_of(given) == b""
        assert await end_of(zygote) == b""
    with connection_to(path) as successor, started_zygote(successor), await source.next():
        pass


async def test_a_successor_is_taken_that_comes_together_with_the_end_of_its_predecessor(
    listener: socket.socket, path: Path
) -> None:
    source = ControlConnection(listener)
    with connection_to(path) as first, started_zygote(first), await source.next():
        first.close()
        with connection_to(path) as successor, started_zygote(successor), await source.next():
            pass


async def test_an_older_zygote_that_nobody_asked_for_gives_way_to_its_successor() -> None:
    supervisors_end, fronts_end = packet_pair()
    with supervisors_end:
        source = ControlConnection(fronts_end)
        older, newer = started_zygote(supervisors_end), started_zygote(supervisors_end)
        with older, newer, await source.next() as given:
            newer.send(b"new")
            assert given.recv(3) == b"new"
            assert await end_of(older) == b""


async def test_a_supervisor_that_is_gone_for_good_is_told_apart() -> None:
    supervisors_end, fronts_end = packet_pair()
    source = ControlConnection(fronts_end)
    supervisors_end.close()
    with pytest.raises(OSError, match=r"has not connected|has gone away"):
        await source.next()
    with pytest.raises(ConnectionResetError, match="the supervisor has gone away"):
        await source.next()
