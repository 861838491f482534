# SPDX-License-Identifier: Apache-2.0
"""Starts, addresses and stops of a writer with receivers."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grpc_health.v1 import health_pb2
from receiving_writer import RECEIVERS, WITH_RECEIVERS, health, is_over, receivers_of, writer_with_receivers
from running_writer import RunningWriter, wait_for

from updraft.errors import PoolUnavailableError
from updraft.service.child import Child
from updraft.service.lifecycle import StartError
from updraft.service.listeners import ListenError
from updraft_writer.receivers.frames import Kind
from updraft_writer.receivers.receivers import _Receiver
from updraft_writer.settings import ServeSettings
from updraft_writer.writer import Writer

TABLE = pa.table({"n": pa.arange(0, 10_000, 1)})
RECEIVERS_MODULE = "updraft_writer.receivers.receivers"


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return the process ids of all receivers that a test starts; none may be left at its end."""
    pids: list[int] = []

    def start(*arguments: Any) -> Child:
        child = Child(*arguments)
        pids.append(child.pid)
        return child

    monkeypatch.setattr(f"{RECEIVERS_MODULE}.Child", start)
    yield pids
    assert pids
    assert not any(map(is_alive, pids))


def stop_each(pids: list[int], monkeypatch: pytest.MonkeyPatch, *, times: int) -> None:
    """Stop the next `times` receivers as soon as they have started."""

    def start(*arguments: Any) -> Child:
        nonlocal times
        child = Child(*arguments)
        pids.append(child.pid)
        if times:
            times -= 1
            os.kill(child.pid, signal.SIGSTOP)
        return child

    monkeypatch.setattr(f"{RECEIVERS_MODULE}.Child", start)


def refuse(receiver: _Receiver, _kind: Kind, _payload: bytes) -> None:
    """Replace a serving receiver by one that cannot serve."""
    receiver._listening.set_exception(ListenError("the certificate cannot be used"))
    receiver.child.kill()


async def run(settings: ServeSettings) -> None:
    await Writer(settings).run()


def test_a_second_writer_at_the_same_address_does_not_start(writer: RunningWriter) -> None:
    with pytest.raises(StartError, match="Address already in use"):
        asyncio.run(run(writer.settings))


def test_a_writer_does_not_share_the_port_of_another_service(
    writer: RunningWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{RECEIVERS_MODULE}._LEAVING_SECONDS", 0.2)
    with closing(socket.socket()) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        settings = writer.settings.model_copy(update={"listen": f"127.0.0.1:{other.getsockname()[1]}"})
        with pytest.raises(StartError, match="Address already in use"):
            asyncio.run(run(settings))


def test_one_of_two_writers_that_start_at_once_gets_the_address(writer: RunningWriter) -> None:
    async def both() -> None:
        settings = writer.settings.model_copy(update={"listen": "127.0.0.1:0"}).with_free_ports()
        starts = [asyncio.create_task(run(settings)) for _ in range(2)]
        ended, running = await asyncio.wait(starts, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert len(running) == 1
        with pytest.raises(StartError, match="Address already in use"):
            ended.pop().result()
        running.pop().cancel()
        await asyncio.wait(starts)

    asyncio.run(both())


def test_a_receiver_that_cannot_start_again_leaves_the_others_alone(
    tmp_path: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{RECEIVERS_MODULE}._RETRY_SECONDS", 0.05)
    with writer_with_receivers(tmp_path) as writer:
        with monkeypatch.context() as patch:
            patch.setattr(_Receiver, "_hear", refuse)
            killed = started[0]
            os.kill(killed, signal.SIGKILL)
            wait_for(lambda: len(started) >= RECEIVERS + 4, "several starts")
            assert not receivers_of(writer).failed.done()
            assert len(receivers_of(writer).open_calls) == RECEIVERS - 1
        wait_for(lambda: is_over(receivers_of(writer), killed), "the start of another receiver")


def test_a_writer_without_any_receiver_ends_and_says_why(
    tmp_path: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in WITH_RECEIVERS.items():
        monkeypatch.setattr(f"updraft_writer.{name}", value)
    monkeypatch.setattr(f"{RECEIVERS_MODULE}._RETRY_SECONDS", 0.05)
    values: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "admin_listen": "",
        "metrics_listen": "",
        "root": (str(tmp_path),),
    }

    async def lose_all() -> None:
        writer = Writer(ServeSettings(**values).with_free_ports())
        running = asyncio.create_task(writer.run())
        assert writer.receivers is not None
        for _ in range(600):
            if len(writer.receivers.open_calls) == RECEIVERS:
                break
            await asyncio.sleep(0.05)
        monkeypatch.setattr(_Receiver, "_hear", refuse)
        for pid in writer.receivers.open_calls:
            os.kill(pid, signal.SIGKILL)
        await asyncio.wait_for(running, 60)

    with pytest.raises(StartError, match="the certificate cannot be used"):
        asyncio.run(lose_all())


def test_a_receiver_that_hangs_in_its_start_ends_the_writer(
    writer: RunningWriter, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{RECEIVERS_MODULE}.START_SECONDS", 0.5)
    stop_each(started, monkeypatch, times=1)
    settings = writer.settings.model_copy(update={"listen": "127.0.0.1:0"}).with_free_ports()
    with pytest.raises(StartError, match="did not serve within"):
        asyncio.run(run(settings))


def test_the_death_of_a_receiver_while_the_writer_is_busy_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch may look at a receiver that has just been reaped."""
    end = Child.end
    with writer_with_receivers(tmp_path) as writer:
        loop = writer._loop

        def end_then_wait(child: Child) -> int:
            code = end(child)
            # Longer than the watch's pause.
            loop.call_soon_threadsafe(time.sleep, 1.2)
            # The loop is waiting by then.
            time.sleep(0.1)
            return code

        killed = next(iter(receivers_of(writer).open_calls))
        with monkeypatch.context() as patch:
            patch.setattr(Child, "end", end_then_wait)
            os.kill(killed, signal.SIGKILL)
            wait_for(lambda: is_over(receivers_of(writer), killed), "the start of another receiver")
        assert not receivers_of(writer).failed.done()


def test_a_replacement_that_hangs_in_its_start_is_replaced(
    tmp_path: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with writer_with_receivers(tmp_path) as writer:
        monkeypatch.setattr(f"{RECEIVERS_MODULE}.START_SECONDS", 3.0)
        stop_each(started, monkeypatch, times=1)
        killed = started[0]
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: is_over(receivers_of(writer), killed), "the start of another receiver")
        assert len(started) == 4


def test_a_stop_while_a_receiver_is_replaced_leaves_none(
    tmp_path: Path, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ending, end = threading.Event(), Child.end

    def end_slowly(child: Child) -> int:
        ending.set()
        # The stop begins during this time.
        time.sleep(0.5)
        return end(child)

    with writer_with_receivers(tmp_path) as writer:
        monkeypatch.setattr(Child, "end", end_slowly)
        os.kill(started[0], signal.SIGKILL)
        assert ending.wait(30)
        writer.stop()
        assert len(started) == RECEIVERS


def test_a_drain_finishes_open_files(tmp_path: Path) -> None:
    with writer_with_receivers(tmp_path) as writer:
        pids = list(receivers_of(writer).open_calls)
        with writer.client() as client, client.create(str(tmp_path / "open"), TABLE.schema) as file:
            file.write(TABLE.slice(0, 1000))
            writer.drain()
            wait_for(lambda: health(writer) == health_pb2.HealthCheckResponse.NOT_SERVING, "the drain")
            with pytest.raises(PoolUnavailableError, match="draining"), writer.client() as other:
                other.create(str(tmp_path / "late"), TABLE.schema).finish()
            file.write(TABLE.slice(1000))
        writer.stop()
        assert pq.read_table(tmp_path / "open").equals(TABLE)
        assert not any(map(is_alive, pids))
