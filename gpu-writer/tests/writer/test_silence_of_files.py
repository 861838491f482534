# SPDX-License-Identifier: Apache-2.0
"""Silent clients and storages end their file; slow ones that send keepalives do not."""

import io
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from running_writer import (
    BATCH,
    BATCH_BYTES,
    SCHEMA,
    WITHIN_SECONDS,
    Gate,
    RawExchange,
    RunningWriter,
    command,
    gated_storage,
    read,
    running_writer,
    wait_for,
)

from updraft.client import remote_file
from updraft.client.writer import WriterClient
from updraft.errors import DeadlineError, PoolUnavailableError, SinkError
from updraft.v1.exchange_pb2 import KeepAlive
from updraft.v1.write_pb2 import Pace, WriteReplyMetadata
from updraft_writer import replies
from updraft_writer.pieces import Piece
from updraft_writer.sinks.local import LocalStorage
from updraft_writer.sinks.sink import Storage

LIMIT_SECONDS = 0.5
# A busy disk may take a second to sync a file.
STEP_LIMIT_SECONDS = 3.0


def next_event(exchange: RawExchange) -> WriteReplyMetadata:
    """Return the next reply other than a keepalive."""
    while (reply := exchange.next_reply()).HasField("keep_alive"):
        pass
    return reply


def send_one_batch(exchange: RawExchange) -> None:
    exchange.ask(BATCH_BYTES)
    assert next_event(exchange).credit == 1
    exchange.batch(1, BATCH)


def receipt_of(exchange: RawExchange) -> WriteReplyMetadata:
    exchange.finish(1, 1000)
    exchange.half_close()
    return exchange.last_reply()


@pytest.fixture
def talkative_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make writers send ten keepalives within the limits of these tests."""
    monkeypatch.setattr(replies, "_KEEPALIVE_SECONDS", LIMIT_SECONDS / 10)


def outlast_the_limit(exchange: RawExchange) -> None:
    """Receive only keepalives for three times the limit."""
    for _ in range(30):
        assert exchange.next_reply().HasField("keep_alive")


def test_a_client_that_says_nothing_is_ended_when_the_writer_waits_for_it(tmp_path: Path) -> None:
    with running_writer(tmp_path, client_silence_seconds=LIMIT_SECONDS) as writer:
        with RawExchange(writer.address, SCHEMA, command(tmp_path / "silent")) as exchange:
            error = exchange.last_reply().error
            assert exchange.call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert error.kind == DeadlineError.kind
        assert "the client was silent for 0.5 seconds" in error.message
        assert "--client-silence-seconds" in error.message


def test_a_client_that_sends_keepalives_may_take_its_time(tmp_path: Path) -> None:
    with (
        running_writer(tmp_path, client_silence_seconds=LIMIT_SECONDS) as writer,
        RawExchange(writer.address, SCHEMA, command(tmp_path / "slow")) as exchange,
    ):
        for _ in range(30):
            time.sleep(LIMIT_SECONDS / 10)
            exchange.say(keep_alive=KeepAlive())
        send_one_batch(exchange)
        assert receipt_of(exchange).receipt.rows == 1000


@pytest.mark.usefixtures("talkative_writer")
def test_a_client_whose_batch_is_being_stored_need_not_say_anything(tmp_path: Path) -> None:
    to_do = command(tmp_path / "stored", pace=Pace.PACE_SYNCHRONOUS)
    with (
        running_writer(tmp_path, client_silence_seconds=LIMIT_SECONDS) as writer,
        gated_storage(writer) as gate,
        RawExchange(writer.address, SCHEMA, to_do) as exchange,
    ):
        send_one_batch(exchange)
        assert gate.reached.wait(WITHIN_SECONDS)
        outlast_the_limit(exchange)
        gate.opened.set()
        assert next_event(exchange).stored == 1
        assert receipt_of(exchange).receipt.rows == 1000


@pytest.mark.usefixtures("talkative_writer")
def test_a_client_that_waits_for_room_need_not_say_anything(tmp_path: Path) -> None:
    with (
        running_writer(tmp_path, client_silence_seconds=LIMIT_SECONDS, quota_bytes=100_000) as writer,
        RawExchange(writer.address, SCHEMA, command(tmp_path / "first")) as first,
        RawExchange(writer.address, SCHEMA, command(tmp_path / "second")) as second,
    ):
        first.ask(48_000)
        assert next_event(first).credit == 1
        second.ask(BATCH_BYTES)
        first_is_there = keepalives_from(first)
        outlast_the_limit(second)
        second_is_there = keepalives_from(second)
        first_is_there.set()
        first.batch(1, BATCH)
        assert receipt_of(first).receipt.rows == 1000
        second_is_there.set()
        assert next_event(second).credit == 1
        second.batch(1, BATCH)
        assert receipt_of(second).receipt.rows == 1000


def keepalives_from(exchange: RawExchange) -> threading.Event:
    """Send keepalives until the event is set."""
    enough = threading.Event()

    def send() -> None:
        while not enough.wait(LIMIT_SECONDS / 10):
            exchange.say(keep_alive=KeepAlive())

    threading.Thread(target=send, daemon=True).start()
    return enough


class HangingStorage(LocalStorage):
    """Storage that blocks in one of its steps until the test opens the gate."""

    def __init__(self, path: Path, step: str, gate: Gate) -> None:
        super().__init__(path)
        self._step = step
        self._gate = gate

    def _hang(self, step: str) -> None:
        if step == self._step:
            self._gate.pass_through()

    def open(self) -> None:
        self._hang("open")
        super().open()

    def write(self, piece: Piece) -> None:
        self._hang("write")
        super().write(piece)

    def complete(self) -> None:
        self._hang("complete")
        super().complete()

    def publish(self) -> None:
        self._hang("publish")
        super().publish()


@contextmanager
def hanging_storage(writer: RunningWriter, step: str) -> Iterator[Gate]:
    gate = Gate()
    writer.writer.factory.storage = lambda path, *_, **__: HangingStorage(Path(path), step, gate)
    try:
        yield gate
    finally:
        gate.opened.set()


def write_and_finish(file: remote_file.RemoteFile) -> None:
    file.write(BATCH)
    file.finish()


@pytest.mark.parametrize("step", ["open", "write", "complete", "publish"])
def test_a_storage_that_does_not_answer_fails_its_file_which_is_held_until_it_does(tmp_path: Path, step: str) -> None:
    with (
        running_writer(tmp_path, storage_silence_seconds=STEP_LIMIT_SECONDS) as writer,
        hanging_storage(writer, step) as gate,
        writer.client() as client,
    ):
        file = client.create(str(tmp_path / "hangs"), SCHEMA)
        with pytest.raises(SinkError, match=r"has not answered for 3 seconds") as failure:
            write_and_finish(file)
        assert "--storage-silence-seconds" in failure.value.message
        assert ("not known" if step == "publish" else "nothing was published") in failure.value.message
        # The step is still running and holds its resources.
        assert gate.reached.is_set()
        assert len(writer.writer.files) == 1
        if step == "write":
            assert writer.writer.quota.held_bytes > 0
        gate.opened.set()
        writer.becomes_empty()
        assert writer.files() == ([] if step != "publish" else ["hangs"])


def test_paths_whose_lookup_hangs_fail_and_hold_up_nobody_else(tmp_path: Path) -> None:
    with running_writer(tmp_path, storage_silence_seconds=LIMIT_SECONDS) as running, running.client() as client:
        gate, real = Gate(), running.writer.factory.storage

        def storage(path: str, *_: object, **__: object) -> Storage:
            if "hangs" in path:
                gate.pass_through()
            return real(path)

        running.writer.factory.storage = storage
        try:
            # More than the loop's own threads.
            with ThreadPoolExecutor(8) as threads:
                names = [str(tmp_path / f"hangs-{number}") for number in range(8)]
                failures = list(threads.map(lambda name: raised_by(client.create(name, SCHEMA).finish), names))
            for failure in failures:
                assert isinstance(failure, SinkError)
                assert re.search(r"cannot reach .*has not answered for 0.5 seconds", failure.message)
            returned = io.BytesIO()
            with client.create("returned", SCHEMA, into=returned) as file:
                file.write(BATCH)
            assert returned.getvalue()[:4] == b"PAR1"
        finally:
            gate.opened.set()


def test_a_file_that_gets_no_thread_does_not_blame_its_own_storage(tmp_path: Path) -> None:
    one_thread = {"file_factory.STORE_THREADS": 1}
    with (
        running_writer(tmp_path, constants=one_thread, storage_silence_seconds=LIMIT_SECONDS) as running,
        running.client() as client,
    ):
        gate, real = Gate(), running.writer.factory.storage

        class Hanging(LocalStorage):
            def write(self, piece: Piece) -> None:
                gate.pass_through()
                super().write(piece)

        file = client.create(str(tmp_path / "healthy"), SCHEMA)
        running.writer.factory.storage = lambda path, *_, **__: Hanging(Path(path))
        try:
            wait_for(lambda: len(running.writer.files) == 1, "the file is open")
            hanging = client.create(str(tmp_path / "hanging"), SCHEMA)
            hanging.write(BATCH)
            with pytest.raises(SinkError, match="the storage has not answered"):
                hanging.finish()
            file.write(BATCH)
            with pytest.raises(SinkError, match="operations of other files have occupied all storage threads"):
                file.finish()
        finally:
            gate.opened.set()
            running.writer.factory.storage = real


_HANGING_WRITER = """
import sys, threading
from pathlib import Path
from updraft_writer.settings import ServeSettings
from updraft_writer.sinks.local import LocalStorage
from updraft_writer.sinks.sink import Storage
from updraft_writer.writer import serve

def hang(self, piece):
    Path(sys.argv[3]).touch()
    threading.Event().wait()

LocalStorage.write = hang
serve(ServeSettings(
    listen="127.0.0.1:0", admin_listen="", metrics_listen="", root=(sys.argv[1],), ready_file=Path(sys.argv[2]),
    drain_timeout_seconds=0.1, storage_silence_seconds=0,
))
"""


def test_a_writer_whose_storage_hangs_ends_after_its_drain(tmp_path: Path) -> None:
    ready, hung = tmp_path / "ready.json", tmp_path / "hung"
    arguments = [sys.executable, "-c", _HANGING_WRITER, str(tmp_path), str(ready), str(hung)]
    with subprocess.Popen(arguments) as process:
        try:
            wait_for(ready.exists, "the writer is ready")
            with WriterClient(json.loads(ready.read_text())["listen"]) as client:
                file = client.create(str(tmp_path / "part.parquet"), SCHEMA)
                file.write(BATCH)
                with ThreadPoolExecutor(1) as thread:
                    finishing = thread.submit(file.finish)
                    wait_for(hung.exists, "the storage hangs")
                    process.send_signal(signal.SIGTERM)
                    with pytest.raises(PoolUnavailableError):
                        finishing.result(WITHIN_SECONDS)
            assert process.wait(WITHIN_SECONDS) == 0
        finally:
            process.kill()


def test_a_file_that_is_given_up_does_not_wait_for_a_storage_that_does_not_answer(tmp_path: Path) -> None:
    with (
        running_writer(tmp_path, storage_silence_seconds=LIMIT_SECONDS) as writer,
        hanging_storage(writer, "write") as gate,
        RawExchange(writer.address, SCHEMA, command(tmp_path / "hangs", pace=Pace.PACE_SYNCHRONOUS)) as exchange,
    ):
        send_one_batch(exchange)
        assert gate.reached.wait(WITHIN_SECONDS)
        exchange.say(abort={"reason": "enough"})
        exchange.last_reply()
        assert exchange.call.code() is grpc.StatusCode.OK
        assert len(writer.writer.files) == 1


@pytest.mark.parametrize(
    ("component", "setting"),
    [("", "--drain-timeout-seconds"), ("writer", "writer.drainTimeoutSeconds of the chart")],
)
def test_a_drain_says_that_another_writer_can_take_the_file_though_the_storage_hangs(
    tmp_path: Path, component: str, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPDRAFT_CONFIGURED_BY", component)
    with (
        running_writer(tmp_path, drain_timeout_seconds=0.2) as writer,
        hanging_storage(writer, "write") as gate,
        writer.client() as client,
    ):
        file = client.create(str(tmp_path / "hangs"), SCHEMA)
        file.write(BATCH)
        failure: list[BaseException] = []
        finishing = threading.Thread(target=lambda: failure.append(raised_by(file.finish)))
        finishing.start()
        assert gate.reached.wait(WITHIN_SECONDS)
        writer.drain()
        wait_for(lambda: file._error is not None, "the error")
        gate.opened.set()
        finishing.join(WITHIN_SECONDS)
    assert isinstance(failure[0], PoolUnavailableError)
    assert "another writer can take it" in failure[0].message
    assert setting in failure[0].message


def raised_by(action: Callable[[], Any]) -> BaseException:
    try:
        action()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_the_client_keeps_a_file_open_that_it_has_nothing_for_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_file, "_KEEPALIVE_SECONDS", LIMIT_SECONDS / 10)
    path = tmp_path / "kept.parquet"
    with running_writer(tmp_path, client_silence_seconds=LIMIT_SECONDS) as writer, writer.client() as client:
        with client.create(str(path), SCHEMA) as file:
            time.sleep(3 * LIMIT_SECONDS)
            file.write(BATCH)
        assert read(path) == list(range(1000))


def test_the_client_does_not_keep_a_file_open_for_a_thread_that_has_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_file, "_KEEPALIVE_SECONDS", LIMIT_SECONDS / 10)
    with running_writer(tmp_path, client_silence_seconds=LIMIT_SECONDS) as writer, writer.client() as client:
        files: list[remote_file.RemoteFile] = []
        producer = threading.Thread(target=lambda: files.append(client.create(str(tmp_path / "lost"), SCHEMA)))
        producer.start()
        producer.join(WITHIN_SECONDS)
        with pytest.raises(DeadlineError, match="--client-silence-seconds"):
            files[0]._wait(lambda: False)
