# SPDX-License-Identifier: Apache-2.0
"""`updraft-server serve` as users start it: every process is real."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight
from served_pool import ECHO, HANG_SECONDS, SCHEMA, Server, batch, echo, finish, serves_again


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("server"), "--workers=2")
    yield running
    assert running.stop() == 0


def test_a_killed_worker_fails_only_its_own_exchange_and_is_replaced(server: Server) -> None:
    with server.client() as client:
        open_exchanges = []
        for value in range(2):
            writer, reader = client.do_exchange(ECHO)
            writer.begin(SCHEMA)
            writer.write_batch(batch(value))
            reader.read_chunk()
            open_exchanges.append((writer, reader))
        before = server.ready()["workers"]
        os.kill(next(iter(before.values())), signal.SIGKILL)
        server.wait_for(lambda: len(set(server.ready()["workers"]) - set(before)) == 1)
        outcomes = [finish(writer, reader) for writer, reader in open_exchanges]
        assert sorted(outcomes) == ["OK", "killed"]
        echo(client)


def test_a_cancelled_exchange_frees_its_worker_at_once(server: Server) -> None:
    with server.client() as client:
        for _ in range(4):
            writer, reader = client.do_exchange(ECHO)
            writer.begin(SCHEMA)
            writer.write_batch(batch(1))
            reader.read_chunk()
            reader.cancel()
        echo(client)


@pytest.mark.parametrize("victim", ["front", "zygote"])
def test_a_killed_process_is_started_again_and_the_pool_serves_on(server: Server, victim: str) -> None:
    before = server.ready()
    os.kill(before[victim], signal.SIGKILL)
    server.wait_for(lambda: server.ready()[victim] != before[victim])
    server.wait_for(lambda: serves_again(server))
    assert server.ready()["listen"] == before["listen"]


def test_a_drain_that_times_out_tells_exchanges_that_another_pool_can_take_them(tmp_path: Path) -> None:
    server = Server(tmp_path, "--workers=1", "--drain-timeout-seconds=0.1")
    with server.client() as client:
        writer, reader = client.do_exchange(ECHO)
        writer.begin(SCHEMA)
        writer.write_batch(batch(1))
        assert reader.read_chunk().data == batch(1)
        server.process.terminate()
        with pytest.raises(pa.ArrowException, match=r"UNAVAILABLE.*the pool is draining and ended the exchange"):
            reader.read_chunk()
        assert finish(writer, reader) != "OK"
    assert server.process.wait(HANG_SECONDS) == 0


def refused_exchange(client: flight.FlightClient) -> None:
    """Start an exchange that waits for the only worker until the drain refuses it, or is refused at once."""
    writer, reader = client.do_exchange(ECHO)
    writer.begin(SCHEMA)
    reader.read_chunk()


def test_sigterm_finishes_what_runs_and_ends_with_status_0(tmp_path: Path) -> None:
    server = Server(tmp_path, "--workers=1")
    with server.client() as client:
        writer, reader = client.do_exchange(ECHO)
        writer.begin(SCHEMA)
        writer.write_batch(batch(1))
        assert reader.read_chunk().data == batch(1)
        server.process.terminate()
        with pytest.raises(flight.FlightUnavailableError, match="draining"):
            refused_exchange(client)
        writer.write_batch(batch(2))
        assert reader.read_chunk().data == batch(2)
        assert finish(writer, reader) == "OK"
    assert server.process.wait(HANG_SECONDS) == 0
