# SPDX-License-Identifier: Apache-2.0
"""Batched functions of a whole pool, as its clients and its operator see them."""

import contextlib
import json
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import model_functions
import pyarrow as pa
import pytest
from pyarrow import flight
from served_pool import HANG_SECONDS, Server

from updraft.protocol import TENANT_HEADER

NUMBERS = pa.schema([pa.field("number", pa.int64())])


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("PYTHONPATH", str(Path(model_functions.__file__).parent))
    monkeypatch.setenv("HOME", str(tmp_path))
    started = Server(tmp_path, "--functions=model_functions", "--workers=2")
    yield started
    started.stop()


class Exchange:
    """Exchange of a plain client."""

    def __init__(self, server: Server, name: str, tenant: str = "") -> None:
        self._client = server.client()
        options = flight.FlightCallOptions(headers=[(TENANT_HEADER.encode(), tenant.encode())])
        self._writer, self._reader = self._client.do_exchange(flight.FlightDescriptor.for_path(name), options)
        self._writer.begin(NUMBERS)

    def call(self, *numbers: int) -> list[int]:
        self._writer.write_batch(pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=NUMBERS))
        return list(self._reader.read_chunk().data.column(0).to_pylist())

    def close(self) -> None:
        self._writer.done_writing()
        self._client.close()


def page_of(server: Server, path: str) -> str:
    return str(urllib.request.urlopen(f"http://{server.ready()['metrics_listen']}{path}").read().decode())


def model_of(server: Server, name: str) -> dict[str, Any]:
    models = json.loads(page_of(server, "/status.json"))["models"]
    return next((model for model in models if model["name"] == name), {"batches": 0, "deaths": 0})


def until_model(server: Server, name: str, field: str) -> dict[str, Any]:
    """Wait until this field of a function's status is set, and return the status; it is measured every two seconds."""
    started = time.monotonic()
    while not (model := model_of(server, name))[field]:
        assert time.monotonic() - started < HANG_SECONDS, model
        time.sleep(0.1)
    return model


def test_clients_share_a_process_and_the_operator_sees_it(server: Server) -> None:
    exchanges = [Exchange(server, "pid") for _ in range(2)]
    pids = {pid for exchange in exchanges for pid in exchange.call(1, 2, 3)}
    model = until_model(server, "pid", "batches")
    assert {process["pid"] for process in model["processes"]} == pids
    assert (model["loads"], model["deaths"]) == (1, 0)
    assert 'updraft_model_batch_rows_count{function="pid",version="1"}' in page_of(server, "/metrics")
    assert "pid@1" in page_of(server, "/status")
    for exchange in exchanges:
        exchange.close()


def test_a_function_that_cannot_be_loaded_says_so_everywhere_and_others_serve(server: Server) -> None:
    until_model(server, "without_weights", "deaths")
    status = json.loads(page_of(server, "/status.json"))
    faults = {function["name"]: function["fault"] for function in status["functions"]}
    assert faults["without_weights"] == "its model process could not load the function: FileNotFoundError: no weights"
    assert status["health"]["updraft.function/without_weights"] is False
    assert 'updraft_functions_unhealthy{function="without_weights"} 1.0' in page_of(server, "/metrics")
    assert 'updraft_functions_unhealthy{function="doubled"} 0.0' in page_of(server, "/metrics")
    with pytest.raises(pa.ArrowException, match="FileNotFoundError: no weights"):
        Exchange(server, "without_weights").call(1)
    exchange = Exchange(server, "doubled")
    assert exchange.call(1, 2) == [2, 4]
    exchange.close()


def test_a_tenant_whose_rows_end_process_after_process_is_held_back_and_nobody_else(server: Server) -> None:
    for _ in range(3):
        with pytest.raises(pa.ArrowException, match="the model process of function 'deadly' was killed by SIGSEGV"):
            Exchange(server, "deadly", tenant="deadly").call(13)
        other = Exchange(server, "deadly", tenant="other")
        assert other.call(1, 2) == [1, 2]
        other.close()
    with pytest.raises(pa.ArrowException, match=r"tenant 'deadly', with its rows, .* is held back"):
        Exchange(server, "deadly", tenant="deadly").call(1)
    other = Exchange(server, "deadly", tenant="other")
    assert other.call(1, 2) == [1, 2]
    other.close()


def test_rows_that_must_not_be_repeated_and_end_process_after_process_are_found_among_others(server: Server) -> None:
    def calls_beside_it(number: int) -> list[int] | None:
        with contextlib.suppress(pa.ArrowException):
            return Exchange(server, "deadly_once", tenant="other").call(number)
        return None

    with ThreadPoolExecutor(1) as thread:
        for _ in range(8):
            beside = thread.submit(calls_beside_it, 1)
            with pytest.raises(pa.ArrowException) as raised:
                Exchange(server, "deadly_once", tenant="deadly").call(13)
            beside.result()
            if "held back" in str(raised.value):
                break
    assert "tenant 'deadly', with its rows," in str(raised.value)
    assert Exchange(server, "deadly_once", tenant="other").call(1, 2) == [1, 2]
