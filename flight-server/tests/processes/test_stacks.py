# SPDX-License-Identifier: Apache-2.0
"""Python stacks of workers, requested from a pool while their functions run."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from other_processes import eventually
from pyarrow import flight
from served_pool import SCHEMA, Server, batch, echo, finish

_MODULE = """
import os
import pathlib
import time

import pyarrow as pa

from updraft import function

here = pathlib.Path({here!r})


@function
def waits(batch: pa.RecordBatch) -> pa.RecordBatch:
    where_it_waits()
    return batch


def where_it_waits():
    (here / "waits").touch()
    while not (here / "go").exists():
        time.sleep(0.01)


@function
def fills_its_pipe(batch: pa.RecordBatch) -> pa.RecordBatch:
    try:
        while True:
            os.write(5, b"a lie about itself" * 100)
    except BlockingIOError:
        return waits(batch)
"""


def stacks(client: flight.FlightClient, worker: str = "") -> dict[str, str]:
    (answer,) = client.do_action(flight.Action("updraft.worker_stack", worker.encode()))
    return dict(json.loads(answer.body.to_pybytes()))


def called(client: flight.FlightClient, directory: Path, function: str) -> tuple[Any, Any]:
    """Start an exchange whose function waits for the test."""
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(function))
    writer.begin(SCHEMA)
    writer.write_batch(batch(1))
    eventually((directory / "waits").exists)
    return writer, reader


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    (tmp_path / "waiting_functions.py").write_text(_MODULE.format(here=str(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    running: list[Server] = []

    def started(*options: str) -> Server:
        running.append(Server(tmp_path, "--functions=waiting_functions", "--workers=1", *options))
        return running[-1]

    yield started
    for server in running:
        server.stop()


def test_a_busy_worker_shows_where_it_is_and_goes_on(start: Callable[..., Server], tmp_path: Path) -> None:
    server = start("--allow-remote-stacks")
    (worker,) = server.ready()["workers"]
    with server.client() as client:
        assert stacks(client) == {}
        call = called(client, tmp_path, "waits")
        for shown in (stacks(client), stacks(client, worker)):
            assert shown.keys() == {worker}
            assert "in where_it_waits" in shown[worker]
            assert shown[worker].index("in where_it_waits") < shown[worker].index("in waits")
        (tmp_path / "go").touch()
        assert finish(*call) == "OK"
        echo(client)
        assert server.ready()["workers"].keys() == {worker}
        # An idle worker waits for its next exchange.
        assert "in run" in stacks(client, worker)[worker]
        with pytest.raises(KeyError, match="no worker has the id 'another': busy are none"):
            stacks(client, "another")


def test_a_function_can_lie_about_itself_and_do_no_more(start: Callable[..., Server], tmp_path: Path) -> None:
    server = start("--allow-remote-stacks")
    with server.client() as client:
        call = called(client, tmp_path, "fills_its_pipe")
        # Text that it wrote before the request is not an answer.
        (shown,) = stacks(client).values()
        assert "a lie about itself" not in shown
        (tmp_path / "go").touch()
        assert finish(*call) == "OK"


def test_a_worker_that_is_stopped_has_no_stack_and_keeps_nobody_waiting(
    start: Callable[..., Server], tmp_path: Path
) -> None:
    server = start("--allow-remote-stacks")
    ((worker, pid),) = server.ready()["workers"].items()
    with server.client() as client:
        call = called(client, tmp_path, "waits")
        psutil.Process(pid).suspend()
        assert stacks(client) == {worker: ""}
        psutil.Process(pid).resume()
        (tmp_path / "go").touch()
        assert finish(*call) == "OK"


def test_clients_have_no_stacks_unless_the_operator_says_so(start: Callable[..., Server]) -> None:
    with start().client() as client:
        assert "updraft.worker_stack" not in {action.type for action in client.list_actions()}
        with pytest.raises(flight.FlightUnauthorizedError, match="--allow-remote-stacks"):
            stacks(client)
