# SPDX-License-Identifier: Apache-2.0
"""Functions that crash, hang, leak or cannot be loaded, in workers or in model processes, beside good ones.

The good ones notice nothing.
"""

import html
import itertools
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pyarrow as pa
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pyarrow import flight
from served_pool import Server

from updraft_server.ipc.function_list import DEATHS_IN_A_ROW

FUNCTIONS = """
import ctypes
import time

from updraft import function
from updraft.functions import Arrow, Batching


def added(number: int):
    @function(name=f"good.add_{number}")
    def add(x: int) -> int:
        return x + number

    return add


good = [added(number) for number in range(10)]
add_0, add_1, add_2, add_3, add_4, add_5, add_6, add_7, add_8, add_9 = good


@function(name="bad.crash")
def crash(x: int) -> int:
    ctypes.string_at(0)
    return x


@function(name="bad.hang")
def hang(x: int) -> int:
    while True:
        pass


@function(name="bad.leak")
def leak(x: int) -> int:
    leaked = []
    while True:
        leaked.append(b"x" * (1 << 25))


@function(name="bad.load")
class Load:
    def __init__(self) -> None:
        raise OSError("the weights are missing")

    def __call__(self, x: int) -> int:
        return x


@function(name="bad.load_hangs", load_timeout_seconds=1)
class LoadHangs:
    def __init__(self) -> None:
        time.sleep(600)

    def __call__(self, x: int) -> int:
        return x


@function(name="bad.load_hangs_in_zygote", load="zygote", load_timeout_seconds=1)
class LoadHangsInZygote(LoadHangs.target):
    pass


@function(name="bad.load_crashes_in_zygote", load="zygote")
class LoadCrashesInZygote:
    def __init__(self) -> None:
        ctypes.string_at(0)

    def __call__(self, x: int) -> int:
        return x


good_model = function(name="good.model", batching=Batching())(add_0.target)
crashing_model = function(name="bad.crashing_model", batching=Batching())(crash.target)
hanging_model = function(name="bad.hanging_model", batching=Batching(load_timeout_seconds=1))(LoadHangs.target)
model_without_weights = function(name="bad.model_without_weights", batching=Batching())(Load.target)


@function(name="bad.leaking_model", batching=Batching())
def leaking_model(x: Arrow[int]) -> Arrow[int]:
    leaked = []
    while True:
        leaked.append(b"x" * (1 << 23))
        time.sleep(0.01)
"""
BAD = {
    "bad.crash": "SIGSEGV",
    "bad.hang": "worked for more than 6 seconds on one batch",
    "bad.leak": "memory",
    "bad.load": "OSError: the weights are missing",
    "bad.load_hangs": "did not load within 1 seconds",
    "bad.load_hangs_in_zygote": "did not load within 1 seconds",
    "bad.load_crashes_in_zygote": "SIGSEGV",
    "bad.hanging_model": "did not load the function within 1 seconds",
    "bad.crashing_model": "SIGSEGV",
    "bad.leaking_model": "memory",
    "bad.model_without_weights": "OSError: the weights are missing",
}
BATCH = pa.record_batch({"_0": pa.array(range(100), pa.int64())})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("poisoned")
    (directory / "poisoned.py").write_text(FUNCTIONS)
    options = [
        "--workers=11",
        "--batch-timeout-seconds=6",
        f"--worker-memory-bytes={192 << 20}",
        f"--model-memory-bytes={192 << 20}",
    ]
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    with (directory / "log").open("wb") as log:
        served = Server(
            directory, "--functions=poisoned", "--session-functions=off", *options, env=environment, stderr=log
        )
        yield served
        served.stop()


def called(client: flight.FlightClient, name: str) -> pa.Table:
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(name))
    with writer:
        writer.begin(BATCH.schema)
        writer.write_batch(BATCH)
        writer.done_writing()
        return reader.read_all()


def test_whatever_becomes_of_bad_functions_good_ones_answer(server: Server) -> None:
    ended = threading.Event()
    answers: list[float] = []
    """When each call of a good one was answered, but for the model, which makes room for bad ones and comes back."""

    def good() -> None:
        with server.client() as client:
            for number in itertools.cycle(range(10)):
                result = called(client, f"good.add_{number}")
                assert result.column(0).to_pylist() == [value + number for value in range(100)]
                answers.append(time.monotonic())
                if ended.is_set():
                    return

    def good_model() -> None:
        with server.client() as client:
            while not ended.wait(0.5):
                assert called(client, "good.model").column(0).to_pylist() == list(range(100))

    def bad(name: str) -> list[tuple[float, str, float]]:
        """Return when each call began, its error, and when it ended."""
        errors = []
        with server.client() as client:
            for _ in range(DEATHS_IN_A_ROW):
                began = time.monotonic()
                with pytest.raises((pa.ArrowException, flight.FlightError)) as caught:
                    called(client, name)
                errors.append((began, str(caught.value), time.monotonic()))
        return errors

    with ThreadPoolExecutor(2 + len(BAD)) as threads:
        good_calls = [threads.submit(calls) for calls in (good, good_model)]
        bad_calls = {name: threads.submit(bad, name) for name in BAD}
        try:
            for name, reason in BAD.items():
                for _, error, _ in bad_calls[name].result():
                    assert reason in error, name
        finally:
            ended.set()
        for calls in good_calls:
            calls.result()
    # Good calls run while bad ones hang for six seconds; calls that waited for those would be few.
    for began, _, end in bad_calls["bad.hang"].result():
        assert sum(began < answered < end for answered in answers) > 10

    faults = {function.name: function.fault for function in server.status().functions}
    assert {name for name, fault in faults.items() if fault} == set(BAD)
    log = (server.ready_file.parent / "log").read_text()
    # The page is refreshed every few seconds.
    server.wait_for(lambda: all(fault in html.unescape(server.page("/status")) for fault in faults.values()))
    metrics = server.page("/metrics")
    for name, reason in BAD.items():
        assert reason in faults[name]
        assert f'updraft_functions_unhealthy{{function="{name}"}} 1.0' in metrics
        assert f'"function": "{name}"' in log or f"function={name}" in log
        assert health(server, name) == health_pb2.HealthCheckResponse.NOT_SERVING
    for name in ["good.model", *(f"good.add_{number}" for number in range(10))]:
        assert health(server, name) == health_pb2.HealthCheckResponse.SERVING
        assert f'updraft_functions_unhealthy{{function="{name}"}} 0.0' in metrics


def health(server: Server, name: str) -> int:
    with grpc.insecure_channel(server.ready()["listen"]) as channel:
        request = health_pb2.HealthCheckRequest(service=f"updraft.function/{name}")
        return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=60).status)
