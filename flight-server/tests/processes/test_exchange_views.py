# SPDX-License-Identifier: Apache-2.0
"""Callers see the output of their own exchanges' functions, and where these functions spend their time."""

import hashlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight
from served_pool import SCHEMA, Server, batch, finish

_MODULE = """
import ctypes
import time

import pyarrow as pa

from updraft import function


@function
def talks(batch: pa.RecordBatch) -> pa.RecordBatch:
    print("value", batch.column(0)[0], flush=True)
    return batch


@function
def mutters(batch: pa.RecordBatch) -> pa.RecordBatch:
    value = batch.column(0)[0].as_py()
    print("Python", value, end="")
    ctypes.CDLL(None).printf(b"C %d", value)
    return batch


@function
def works(batch: pa.RecordBatch) -> pa.RecordBatch:
    until = time.monotonic() + 3
    while time.monotonic() < until:
        computes()
    return batch


def computes():
    sum(range(2000))
"""

ANN, BOB = {"log_key": "a" * 32}, {"log_key": "b" * 32}
Query = dict[str, Any]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    (tmp_path / "shown_functions.py").write_text(_MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    running: list[Server] = []

    def started(*options: str) -> Server:
        running.append(Server(tmp_path, "--functions=shown_functions", *options))
        return running[-1]

    yield started
    for server in running:
        server.stop()


def options(token: str = "", log_key: str = "") -> flight.FlightCallOptions:
    headers = {"authorization": f"Bearer {token}" if token else "", "x-updraft-log-key": log_key}
    return flight.FlightCallOptions(
        headers=[(name.encode(), value.encode()) for name, value in headers.items() if value]
    )


def ask(client: flight.FlightClient, action: str, query: Query, token: str = "") -> dict[str, Any]:
    (answer,) = client.do_action(flight.Action(action, json.dumps(query).encode()), options(token))
    return dict(json.loads(answer.body.to_pybytes()))


def lines(client: flight.FlightClient, query: Query, token: str = "", action: str = "updraft.output") -> list[str]:
    return [line["line"] for line in ask(client, action, query, token)["lines"]]


def call(client: flight.FlightClient, function: str, value: int, **who: str) -> None:
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(function), options(**who))
    writer.begin(SCHEMA)
    writer.write_batch(batch(value, rows=1))
    assert finish(writer, reader) == "OK"


def test_a_key_opens_the_output_of_the_exchanges_that_had_it(start: Callable[..., Server]) -> None:
    with start("--workers=1").client() as client:
        call(client, "talks", 1, **ANN)
        call(client, "talks", 2, **BOB)
        call(client, "talks", 3)
        assert lines(client, ANN) == ["value 1"]
        assert lines(client, BOB) == ["value 2"]
        (line,) = ask(client, "updraft.output", ANN)["lines"]
        assert (line["function"], line["time_microseconds"] > 0) == ("talks", True)
        assert lines(client, {**ANN, "after_microseconds": line["time_microseconds"]}) == []
        for refused in ("updraft.output", "updraft.profile"):
            with pytest.raises(flight.FlightUnauthorizedError, match="which exchanges of 'anybody' are your own"):
                ask(client, refused, {"seconds": 1})
        with pytest.raises(flight.FlightUnauthorizedError, match="scope admin"):
            lines(client, ANN, action="updraft.all_output")
        with pytest.raises(flight.FlightUnauthorizedError, match="--allow-remote-stacks"):
            ask(client, "updraft.all_profiles", {"seconds": 1})
        with pytest.raises(Exception, match="lines: Input should be greater than 0"):
            lines(client, {**ANN, "lines": 0})


def test_what_one_caller_left_unfinished_does_not_come_out_among_the_lines_of_the_next(
    start: Callable[..., Server],
) -> None:
    with start("--workers=1").client() as client:
        for value in range(1, 5):
            call(client, "mutters", value, log_key=str(value) * 32)
        for value in range(1, 5):
            assert "".join(lines(client, {"log_key": str(value) * 32})) == f"Python {value}C {value}"


def test_an_identity_reads_its_own_output_and_an_administrator_reads_all(
    start: Callable[..., Server], tmp_path: Path
) -> None:
    identities = tmp_path / "identities.toml"
    identities.write_text(
        "".join(
            f'[[identity]]\nname = "{name}"\ntenant = "{tenant}"\nscopes = ["{scope}"]\n'
            f'token_sha256 = ["{hashlib.sha256(name.encode()).hexdigest()}"]\n'
            for name, tenant, scope in (
                ("ann", "a", "call"),
                ("bob", "a", "call"),
                ("cy", "*", "call"),
                ("root", "a", "admin"),
            )
        )
    )
    with start("--workers=1", f"--identities-file={identities}").client() as client:
        for value, name in enumerate(("ann", "bob", "cy")):
            call(client, "talks", value, token=name)
        assert lines(client, {}, "ann") == ["value 0"]
        assert lines(client, {}, "bob") == ["value 1"]
        assert lines(client, {}, "cy") == ["value 2"]
        assert lines(client, {}, "root") == []
        everything = ["value 0", "value 1", "value 2"]
        assert lines(client, {}, "root", "updraft.all_output") == everything
        with pytest.raises(flight.FlightUnauthorizedError):
            lines(client, {}, "ann", "updraft.all_output")


def test_a_profile_shows_where_a_running_function_is(start: Callable[..., Server]) -> None:
    server = start("--workers=2", "--allow-remote-stacks")
    with server.client() as client, ThreadPoolExecutor(1) as calling:
        running = calling.submit(call, client, "works", 1, **ANN)
        profiles = [ask(client, "updraft.profile", {**ANN, "function": "works", "seconds": 1})]
        profiles += [ask(client, "updraft.all_profiles", {"seconds": 1.0})]
        assert ask(client, "updraft.profile", {**BOB, "seconds": 0.2})["stacks"] == {}
        assert ask(client, "updraft.profile", {**ANN, "function": "talks", "seconds": 0.2})["stacks"] == {}
        running.result()
    for profile in profiles:
        inside = sum(count for stack, count in profile["stacks"].items() if ";works (" in stack)
        assert inside > 20
        assert inside >= 0.9 * profile["samples"]
        assert any(";computes (" in stack for stack in profile["stacks"])
        assert all("updraft_server/zygote" not in stack for stack in profile["stacks"])
