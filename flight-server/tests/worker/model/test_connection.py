# SPDX-License-Identifier: Apache-2.0
"""Model process's end of a worker's socket; the test plays the worker."""

import math
import select
import socket
from collections.abc import Iterator

import pyarrow as pa
import pytest

from updraft_server.worker.model.connection import Connection, ConnectionEndedError, Room
from updraft_server.worker.model.messages import (
    HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    MessageError,
    MessageKind,
    decode_header,
    encode_header,
)

ROWS = encode_header(MessageKind.ROWS, 7, 1.5, 10) + b"0123456789"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    worker, model = socket.socketpair()
    with worker, model:
        yield worker, model


def test_a_request_is_there_once_its_last_byte_is(ends: tuple[socket.socket, socket.socket]) -> None:
    worker, model = ends
    connection = Connection(model, Room(100))
    for byte in ROWS[:-1]:
        worker.send(bytes([byte]))
        assert connection.receive() is None
    worker.send(ROWS[-1:])
    request = connection.receive()
    assert request is not None
    assert request.message == (MessageKind.ROWS, 7, 1.5, 10)
    assert request.payload.to_pybytes() == b"0123456789"


def test_the_next_request_is_read_when_the_first_one_is_answered(ends: tuple[socket.socket, socket.socket]) -> None:
    worker, model = ends
    connection = Connection(model, Room(100))
    worker.send(ROWS + ROWS)
    assert connection.receive() is not None
    assert not connection.events & select.POLLIN
    connection.send(MessageKind.RESULT, 7, b"done")
    assert connection.events & select.POLLIN
    assert connection.receive() is not None
    assert decode_header(worker.recv(HEADER_BYTES)) == (MessageKind.RESULT, 7, 0.0, 4)
    assert worker.recv(100) == b"done"


def test_a_request_waits_until_others_have_given_back_enough_of_what_all_may_hold() -> None:
    room = Room(40)
    pairs = [socket.socketpair() for _ in range(2)]
    first, second = (Connection(model, room) for _, model in pairs)
    for worker, _ in pairs:
        worker.send(ROWS)
    assert first.receive() is not None
    assert second.receive() is None
    assert not second.events & select.POLLIN
    first.send(MessageKind.RESULT)
    assert second.events & select.POLLIN
    assert second.receive() is not None
    for worker, model in pairs:
        worker.close()
        model.close()


def test_a_connection_that_ends_gives_back_what_its_request_held() -> None:
    room = Room(40)
    pairs = [socket.socketpair() for _ in range(2)]
    first, second = (Connection(model, room) for _, model in pairs)
    for worker, _ in pairs:
        worker.send(ROWS)
    assert first.receive() is not None
    first.close()
    assert first.is_closed
    assert second.receive() is not None
    for worker, model in pairs:
        worker.close()
        model.close()


def test_a_request_that_is_larger_than_all_may_hold_is_read_alone(ends: tuple[socket.socket, socket.socket]) -> None:
    worker, model = ends
    worker.send(ROWS)
    assert Connection(model, Room(5)).receive() is not None


def test_results_that_the_socket_does_not_take_are_kept_and_sent_later(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    worker, model = ends
    connection = Connection(model, Room(100))
    large = bytes(8 << 20)
    connection.send(MessageKind.RESULT, 1, large)
    assert connection.events & select.POLLOUT
    received = 0
    while received < HEADER_BYTES + len(large):
        received += len(worker.recv(1 << 20))
        connection.flush()
    assert not connection.events & select.POLLOUT


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * HEADER_BYTES,
        encode_header(MessageKind.ROWS, payload_bytes=MAX_PAYLOAD_BYTES + 1),
        encode_header(MessageKind.ROWS, sent_seconds=math.nan),
        encode_header(MessageKind.ROWS, sent_seconds=-math.inf),
        encode_header(MessageKind.RESULT),
        encode_header(MessageKind.GOODBYE),
    ],
)
def test_what_is_no_request_is_an_error(ends: tuple[socket.socket, socket.socket], data: bytes) -> None:
    worker, model = ends
    worker.send(data)
    with pytest.raises(MessageError):
        Connection(model, Room(100)).receive()


@pytest.mark.parametrize("data", [b"", ROWS[:5], ROWS[:-1]])
def test_a_worker_that_has_gone_is_an_error(ends: tuple[socket.socket, socket.socket], data: bytes) -> None:
    worker, model = ends
    connection = Connection(model, Room(100))
    worker.send(data)
    if data:
        connection.receive()
    worker.close()
    with pytest.raises(ConnectionEndedError):
        connection.receive()
    with pytest.raises(ConnectionEndedError):
        connection.send(MessageKind.RESULT, 1, bytes(8 << 20))


def test_a_request_for_which_there_is_no_memory_is_an_error_and_holds_nothing(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(_: int) -> pa.Buffer:
        raise pa.ArrowMemoryError

    monkeypatch.setattr(pa, "allocate_buffer", no_memory)
    worker, model = ends
    room = Room(40)
    connection = Connection(model, room)
    worker.send(ROWS)
    with pytest.raises(MessageError, match="no memory"):
        connection.receive()
    connection.close()
    assert room.has(40)
