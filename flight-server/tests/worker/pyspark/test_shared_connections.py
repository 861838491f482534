# SPDX-License-Identifier: Apache-2.0
"""Connections that several threads use, and the socket on which a worker reaches its session's Connect server."""

from __future__ import annotations

import os
import queue
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import NoReturn

import pyarrow as pa
import pyspark
import pytest
from tests.support.waiting import until

from updraft.errors import InternalError, ProtocolError, UpdraftError
from updraft_server.worker.exchange import RequestBatch
from updraft_server.worker.pyspark.adapters import minor_version
from updraft_server.worker.pyspark.connect_server import ConnectServer
from updraft_server.worker.pyspark.connections import RUNNER, SCHEMA
from updraft_server.worker.pyspark.shared_connections import SharedConnections

pytestmark = pytest.mark.skipif(
    minor_version(pyspark.__version__) < (4, 0), reason="before Spark 4.0 no tunnel serves its workers"
)

_HANG_SECONDS = 30
_CONNECT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as other:
    other.connect(chr(0) + sys.argv[1])
    other.settimeout(20)
    print(other.recv(1))
"""


class Client:
    """Client's side, which sends a piece or an error when a test says so."""

    max_bytes_per_reply = 0

    def __init__(self) -> None:
        self._arrivals, self._arrived = socket.socketpair()
        self._sent: queue.Queue[RequestBatch | Exception | None] = queue.Queue()
        self.got: queue.Queue[tuple[int, bytes]] = queue.Queue()
        self.acknowledged = 0
        self._taken = 0
        self._in_use = threading.Lock()

    def close(self) -> None:
        self._arrivals.close()
        self._arrived.close()

    def send(self, number: int, data: bytes) -> None:
        rows = [{"connection": number, "data": data, "read": 0}]
        self._put(RequestBatch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA)))

    def end(self) -> None:
        self._put(None)

    def lie(self) -> None:
        self._put(ProtocolError("a lie"))

    def break_down(self) -> None:
        self._put(MemoryError())

    def _put(self, event: RequestBatch | Exception | None) -> None:
        self._sent.put(event)
        self._arrived.send(b"x")

    @property
    def descriptor(self) -> int:
        return self._arrivals.fileno()

    def wait(self, seconds: float | None = None) -> bool:
        return True

    def acknowledge(self) -> None:
        self.acknowledged = self._taken

    def take(self) -> RequestBatch | None:
        assert self._in_use.acquire(blocking=False)
        self._arrivals.recv(1)
        event = self._sent.get(timeout=_HANG_SECONDS)
        self._taken += 1
        self._in_use.release()
        if isinstance(event, Exception):
            raise event
        return event

    def reply(self, batch: pa.RecordBatch, *, sequence: int) -> None:
        assert self._in_use.acquire(blocking=False)
        assert sequence > 0
        row = batch.to_pylist()[0]
        self.got.put((row["connection"], row["data"]))
        self._in_use.release()

    def fail(self, error: UpdraftError) -> NoReturn:
        raise error

    def next(self) -> tuple[int, bytes]:
        return self.got.get(timeout=_HANG_SECONDS)


@pytest.fixture
def client() -> Iterator[Client]:
    before = set(threading.enumerate())
    client = Client()
    yield client
    client.end()
    try:
        until("the client's threads end", lambda: not set(threading.enumerate()) - before)
    finally:
        client.close()


def test_threads_wait_for_different_connections(client: Client) -> None:
    connections = SharedConnections(client)
    numbers = [RUNNER, connections.open("1"), connections.open("2")]
    assert [client.next() for _ in numbers[1:]] == [(1, b"1"), (2, b"2")]
    found: dict[int, bytes] = {}

    def serve(number: int) -> None:
        found[number] = bytes(connections.receive(number))
        connections.send(number, found[number] * 2)

    threads = [threading.Thread(target=serve, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for number in reversed(numbers):
        client.send(number, b"%d" % number)
    assert {client.next() for _ in numbers} == {(number, b"%d%d" % (number, number)) for number in numbers}
    for thread in threads:
        thread.join(_HANG_SECONDS)
    assert found == {number: b"%d" % number for number in numbers}


def test_what_was_taken_is_acknowledged_before_the_next_wait(client: Client) -> None:
    connections = SharedConnections(client)
    client.send(RUNNER, b"a")
    assert bytes(connections.receive(RUNNER)) == b"a"
    client.send(RUNNER, b"b")
    assert bytes(connections.receive(RUNNER)) == b"b"
    assert client.acknowledged >= 1


def test_the_end_of_the_exchange_ends_every_stream(client: Client) -> None:
    connections = SharedConnections(client)
    number = connections.open("1")
    waiting = threading.Thread(target=connections.receive, args=(number,))
    waiting.start()
    client.end()
    waiting.join(_HANG_SECONDS)
    assert not waiting.is_alive()
    connections.finish(0)


def test_a_failure_reaches_every_thread(client: Client) -> None:
    connections = SharedConnections(client)
    client.lie()
    for _ in range(2):
        with pytest.raises(ProtocolError, match="a lie"):
            connections.receive(RUNNER)


def test_an_unexpected_failure_reaches_every_thread(client: Client) -> None:
    connections = SharedConnections(client)
    client.break_down()
    with pytest.raises(InternalError, match="MemoryError"):
        connections.receive(RUNNER)


def test_nothing_is_sent_after_the_end(client: Client) -> None:
    connections = SharedConnections(client)
    client.end()
    connections.finish(0)
    assert client.next()[0] == RUNNER
    connections.send(RUNNER, b"late")
    assert client.got.empty()


@pytest.fixture
def server(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConnectServer]:
    from pyspark.sql.connect.client.core import ChannelBuilder

    for name in ("_insecure_channel", "_secure_channel"):
        # Set to themselves, so that the originals are restored after the test replaces them.
        monkeypatch.setattr(ChannelBuilder, name, getattr(ChannelBuilder, name))
    monkeypatch.setenv("SPARK_CONNECT_LOCAL_URL", "sc://localhost:15002/;user_id=a")
    server = ConnectServer(SharedConnections(client))
    yield server
    server._listening.shutdown(socket.SHUT_RDWR)


def test_bytes_of_this_process_travel_to_the_server_and_back(client: Client, server: ConnectServer) -> None:
    with socket.socket(socket.AF_UNIX) as ours:
        ours.connect(f"\0{server._name}")
        assert client.next() == (1, b"15002")
        ours.sendall(b"question")
        assert client.next() == (1, b"question")
        client.send(1, b"answer")
        ours.settimeout(_HANG_SECONDS)
        assert ours.recv(100) == b"answer"
    assert client.next() == (1, b"")


def test_another_process_is_not_served(client: Client, server: ConnectServer) -> None:
    other = subprocess.run([sys.executable, "-c", _CONNECT, server._name], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == "b''"
    assert client.got.empty()


def test_a_shortage_of_descriptors_passes(client: Client, server: ConnectServer) -> None:
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    first, second = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    with first, second:
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, most))
        try:
            first.connect(f"\0{server._name}")
            # Meanwhile the server tries to accept at least once.
            time.sleep(0.2)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
        assert client.next() == (1, b"15002")
        second.connect(f"\0{server._name}")
        assert client.next() == (2, b"15002")
        assert {client.next() if shut(each) else None for each in (first, second)} == {(1, b""), (2, b"")}


def shut(each: socket.socket) -> bool:
    each.shutdown(socket.SHUT_RDWR)
    return True
