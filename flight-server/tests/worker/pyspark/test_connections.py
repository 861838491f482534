# SPDX-License-Identifier: Apache-2.0
"""Byte streams of a worker exchange: order, limits, reports of what was read, and bytes of the next task."""

from __future__ import annotations

import io
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NoReturn

import pyarrow as pa
import pytest

from updraft.errors import ProtocolError, UpdraftError
from updraft_server.worker.exchange import RequestBatch
from updraft_server.worker.pyspark.connections import (
    BUFFER_BYTES,
    REPORT_BYTES,
    RUNNER,
    SCHEMA,
    ByteStream,
    Connections,
)
from updraft_server.worker.pyspark.host_services import HostSocket
from updraft_server.worker.pyspark.worker_modules import run_main

Piece = tuple[int, bytes]


class Client:
    """Client's side: the batches it has sent, and the pieces it has received."""

    def __init__(self, sent: Sequence[Piece], max_bytes_per_reply: int = 0) -> None:
        self.max_bytes_per_reply = max_bytes_per_reply
        self._sent = deque(batch([piece]) for piece in sent)
        self.got: list[tuple[int, bytes | None, int]] = []

    descriptor = -1

    def acknowledge(self) -> None:
        """Do nothing: these tests do not wait for it."""

    def wait(self, seconds: float | None = None) -> bool:
        return True

    def take(self) -> RequestBatch | None:
        return RequestBatch(self._sent.popleft()) if self._sent else None

    def fail(self, error: UpdraftError) -> NoReturn:
        raise error

    def reply(self, batch: pa.RecordBatch, *, sequence: int) -> None:
        assert batch.schema == SCHEMA
        batch.validate(full=True)
        assert sequence == len(self.got) + 1
        row = batch.to_pylist()[0]
        self.got.append((row["connection"], row["data"], row["read"]))

    @property
    def pieces(self) -> list[tuple[int, bytes | None]]:
        return [(number, data) for number, data, _ in self.got]


def batch(pieces: Sequence[Piece]) -> pa.RecordBatch:
    rows = [{"connection": number, "data": data, "read": 0} for number, data in pieces]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def module_of(main: Callable[..., None]) -> ModuleType:
    module = ModuleType("worker")
    vars(module)["main"] = main
    return module


def runner(client: Client) -> ByteStream:
    return ByteStream(Connections(client), RUNNER)


def test_bytes_are_read_across_pieces_and_end_with_the_input() -> None:
    stream = io.BufferedReader(runner(Client([(RUNNER, b"abc"), (RUNNER, b"defg")])), 4)
    assert stream.read(2) == b"ab"
    assert stream.read(4) == b"cdef"
    assert stream.read(4) == b"g"
    assert stream.read(4) == b""


def test_a_large_write_is_sent_in_replies_below_the_limit() -> None:
    client = Client([], max_bytes_per_reply=4096)
    data = bytes(range(256)) * 100
    assert runner(client).write(data) == len(data)
    assert b"".join(piece or b"" for _, piece in client.pieces) == data
    assert max(len(piece or b"") for _, piece in client.pieces) <= 2048


def test_the_client_hears_how_much_was_surely_read() -> None:
    size = REPORT_BYTES + BUFFER_BYTES
    client = Client([(RUNNER, bytes(size)), (RUNNER, b"x")])
    stream = runner(client)
    room = bytearray(size)
    assert stream.readinto(room) == size
    assert client.got == [(RUNNER, None, REPORT_BYTES)]
    assert stream.readinto(room) == 1
    assert len(client.got) == 1


def test_a_service_is_called_while_the_runner_goes_on_sending() -> None:
    client = Client([(RUNNER, b"rows"), (1, b"state"), (1, b""), (RUNNER, b"more")])
    connections = Connections(client)
    socket = HostSocket(connections)
    socket.connect(("localhost", 4711))
    file = socket.makefile("rwb")
    file.write(b"get")
    file.flush()
    assert file.read(5) == b"state"
    assert file.read(1) == b""
    socket.close()
    socket.close()
    assert client.pieces == [(1, b"4711"), (1, b"get"), (1, b"")]
    rest = io.BufferedReader(ByteStream(connections, RUNNER))
    assert rest.read() == b"rowsmore"


def test_the_end_tells_exactly_what_was_read() -> None:
    client = Client([(RUNNER, b"task1NEXT"), (RUNNER, b"TASK"), (RUNNER, b"...")])
    connections = Connections(client)
    stream = ByteStream(connections, RUNNER)

    def main(infile: io.BufferedReader, outfile: io.BufferedWriter) -> None:
        outfile.write(infile.read(5))

    outcome = run_main(module_of(main), stream)
    assert outcome.error is None
    connections.finish(outcome.unread_bytes)
    assert client.got == [(RUNNER, b"task1", 0), (RUNNER, b"", 5)]
    assert client.take() is None


def test_the_runners_stream_begins_with_the_opening_which_is_not_counted() -> None:
    client = Client([(RUNNER, b"sk1NEXT")])
    connections = Connections(client, b"ta")

    def main(infile: io.BufferedReader, outfile: io.BufferedWriter) -> None:
        outfile.write(infile.read(5))

    connections.finish(run_main(module_of(main), ByteStream(connections, RUNNER)).unread_bytes)
    assert client.got == [(RUNNER, b"task1", 0), (RUNNER, b"", 3)]


def test_an_opening_that_is_not_read_belongs_to_no_other_task() -> None:
    client = Client([(RUNNER, b"NEXT")])
    connections = Connections(client, b"task")

    def main(_infile: io.BufferedReader, _outfile: io.BufferedWriter) -> None:
        pass

    connections.finish(run_main(module_of(main), ByteStream(connections, RUNNER)).unread_bytes)
    assert client.got == [(RUNNER, b"", 0)]


def test_a_module_that_raises_has_sent_its_output_first() -> None:
    client = Client([(RUNNER, b"task")])

    def main(_infile: io.BufferedReader, outfile: io.BufferedWriter) -> None:
        outfile.write(b"traceback")
        raise SystemExit(-1)

    outcome = run_main(module_of(main), runner(client))
    assert isinstance(outcome.error, SystemExit)
    assert client.pieces == [(RUNNER, b"traceback")]


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (batch([(7, b"x")]), "connection 7 is not open"),
        (pa.record_batch({"bytes": pa.array([b"x"])}), "a worker exchange has the schema"),
    ],
)
def test_an_unknown_connection_or_schema_is_refused(sent: pa.RecordBatch, problem: str) -> None:
    client = Client([])
    client._sent.append(sent)
    with pytest.raises(ProtocolError, match=problem):
        runner(client).readinto(bytearray(1))


def test_a_thread_may_read_ahead_while_another_one_writes() -> None:
    class Arriving(Client):
        """Client that sends its next piece only when something has been written to it."""

        def __init__(self, sent: Sequence[Piece]) -> None:
            super().__init__(sent)
            self.written = threading.Semaphore(0)
            self.busy = threading.Lock()

        def wait(self, seconds: float | None = None) -> bool:
            if seconds == 0:
                return True
            return self.written.acquire(timeout=seconds)

        def reply(self, batch: pa.RecordBatch, *, sequence: int) -> None:
            assert self.busy.acquire(blocking=False), "two threads use the exchange at the same time"
            super().reply(batch, sequence=sequence)
            self.busy.release()
            self.written.release()

    pieces = [(RUNNER, bytes([number])) for number in range(100)]
    client = Arriving(pieces)
    connections = Connections(client)
    read: list[bytes] = []

    def read_all() -> None:
        while piece := connections.receive(RUNNER):
            read.append(bytes(piece))

    reader = threading.Thread(target=read_all)
    reader.start()
    for _ in range(len(pieces) + 1):
        connections.send(RUNNER, b"output")
    reader.join(60)
    assert read == [data for _, data in pieces]
    assert len(client.got) == len(pieces) + 1
