# SPDX-License-Identifier: Apache-2.0
"""A pool's descriptions of its functions; a module or function that cannot be loaded is listed with its own fault."""

import os
from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow as pa
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pyarrow import flight
from served_pool import Server, echo

from updraft.v1 import control_pb2
from updraft.v1.control_pb2 import FunctionDescription, PoolStatus

FUNCTIONS = '''
from collections.abc import Iterator
from typing import NamedTuple

from updraft import function


@function(name="prices.discount", owner="pricing", tags=["money", "daily"], on_error="null")
def discount_1(price: float, percent: float | None = 10.0) -> float:
    """Takes the discount off.

    The whole story.
    """
    return price * (1 - percent / 100)


@function(name="prices.discount", version="2", deterministic=False)
def discount_2(price: float) -> float:
    return price


class Word(NamedTuple):
    text: str
    length: int | None


@function.table
def words(text: str | None) -> Iterator[Word]:
    yield Word("a", 1)


@function.aggregate(version="3")
class Total:
    def start(self) -> float:
        return 0.0

    def accumulate(self, state: float, value: int, weight: float = 1.0) -> float:
        return state + value * weight

    def merge(self, left: float, right: float) -> float:
        return left + right

    def finish(self, state: float) -> float | None:
        return state


@function(load="zygote")
class BrokenEverywhere:
    def __init__(self) -> None:
        raise OSError("the weights are missing")

    def __call__(self, x: int) -> int:
        return x


@function
def twice(x: int) -> int:
    return x


again = function(name="twice")(twice.target)
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("described")
    (directory / "described.py").write_text(FUNCTIONS)
    (directory / "unfinished.py").write_text("import a_package_that_nobody_has\n")
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    with (directory / "log").open("wb") as log:
        options = ["--functions=described,unfinished", "--workers=1", "--session-functions=off"]
        served = Server(directory, *options, env=environment, stderr=log)
        yield served
        served.stop()


@pytest.fixture
def client(server: Server) -> Iterator[flight.FlightClient]:
    with server.client() as connected:
        yield connected


def status(client: flight.FlightClient) -> PoolStatus:
    (result,) = client.do_action(flight.Action("updraft.pool_status", b""))
    return PoolStatus.FromString(result.body.to_pybytes())


def described(client: flight.FlightClient, name: str, version: str = "") -> FunctionDescription:
    found = [each for each in status(client).functions if each.name == name and version in ("", each.version)]
    return found[-1]


def info(client: flight.FlightClient, *path: str) -> flight.FlightInfo:
    return client.get_flight_info(flight.FlightDescriptor.for_path(*path))


def call(client: flight.FlightClient, *path: str, batch: pa.RecordBatch) -> Any:
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(*path))
    with writer:
        writer.begin(batch.schema)
        writer.write_batch(batch)
        writer.done_writing()
        return reader.read_all().column(0).to_pylist()


def test_a_status_has_all_that_an_author_has_said(client: flight.FlightClient) -> None:
    discount = described(client, "prices.discount", "1")
    assert (discount.doc, discount.owner, list(discount.tags)) == (
        "Takes the discount off.\n\nThe whole story.",
        "pricing",
        ["money", "daily"],
    )
    assert (discount.kind, discount.error_policy) == (
        control_pb2.FUNCTION_KIND_SCALAR,
        control_pb2.ERROR_POLICY_NULL,
    )
    assert (discount.deterministic, discount.arguments_with_default, list(discount.defaults)) == (True, 1, ["10.0"])
    assert pa.ipc.open_stream(discount.default_row).read_all().to_pylist() == [{"percent": 10.0}]
    assert not described(client, "echo").default_row
    assert pa.ipc.read_schema(pa.py_buffer(discount.argument_schema)) == pa.schema(
        [pa.field("price", pa.float64(), nullable=False), pa.field("percent", pa.float64())]
    )
    assert pa.ipc.read_schema(pa.py_buffer(discount.result_schema)) == pa.schema({"result": pa.float64()})
    assert not described(client, "prices.discount", "2").deterministic
    assert discount.by_row
    assert not described(client, "echo").by_row


def test_flight_info_has_arguments_and_results_and_the_number_of_arguments(client: flight.FlightClient) -> None:
    discount = info(client, "prices.discount", "1")
    assert discount.schema == pa.schema(
        [
            pa.field("price", pa.float64(), nullable=False),
            pa.field("percent", pa.float64()),
            pa.field("result", pa.float64()),
        ]
    )
    assert discount.total_records == 2
    assert FunctionDescription.FromString(discount.app_metadata) == described(client, "prices.discount", "1")
    assert info(client, "prices.discount").descriptor.path == [b"prices.discount", b"2"]
    assert info(client, "prices.discount@1").descriptor.path == [b"prices.discount", b"1"]


def value(name: str, kind: pa.DataType) -> pa.Field:
    """Return a field without nulls."""
    return pa.field(name, kind, nullable=False)


# Declarations of the functions above: arguments, and results as a plain client gets them.
DECLARED: dict[tuple[str, ...], tuple[list[pa.Field], list[pa.Field]] | None] = {
    ("prices.discount", "1"): (
        [value("price", pa.float64()), pa.field("percent", pa.float64())],
        [pa.field("result", pa.float64())],
    ),
    ("prices.discount", "2"): ([value("price", pa.float64())], [value("result", pa.float64())]),
    ("words", "1"): (
        [pa.field("text", pa.string())],
        [
            value("row", pa.int32()),
            value("result", pa.struct([pa.field("text", pa.string()), pa.field("length", pa.int64())])),
        ],
    ),
    ("Total", "3"): (
        [value("value", pa.int64()), value("weight", pa.float64())],
        [pa.field("result", pa.float64())],
    ),
    # Broken as a function, as two functions with one name, and as a module that cannot be imported.
    ("BrokenEverywhere", "1"): ([value("x", pa.int64())], [value("result", pa.int64())]),
    ("twice", "1"): ([value("x", pa.int64())], [value("result", pa.int64())]),
    ("unfinished",): None,
    # Built into every pool; it takes any columns.
    ("echo", "1"): None,
}


def path(flight_info: flight.FlightInfo) -> tuple[str, ...]:
    return tuple(part.decode() for part in flight_info.descriptor.path)


def test_flights_are_all_functions(client: flight.FlightClient) -> None:
    flights = [path(flight_info) for flight_info in client.list_flights()]
    assert sorted(flights) == sorted(
        (each.name, each.version) if each.version else (each.name,) for each in status(client).functions
    )
    assert sorted(flights) == sorted(DECLARED)


@pytest.mark.parametrize("declared", DECLARED, ids="@".join)
def test_a_flight_has_the_schema_that_its_function_declares(
    client: flight.FlightClient, declared: tuple[str, ...]
) -> None:
    (listed,) = (flight_info for flight_info in client.list_flights() if path(flight_info) == declared)
    for described_flight in (listed, info(client, *declared)):
        assert path(described_flight) == declared
        fields = DECLARED[declared]
        if fields is None:
            assert (described_flight.schema, described_flight.total_records) == (None, -1)
        else:
            arguments, results = fields
            assert described_flight.schema == pa.schema([*arguments, *results])
            assert described_flight.total_records == len(arguments)


def test_a_version_is_pinned_in_the_name(client: flight.FlightClient) -> None:
    batch = pa.record_batch({"_0": [100.0]})
    assert call(client, "prices.discount", batch=batch) == [100.0]
    assert call(client, "prices.discount@1", batch=batch) == [90.0]
    assert call(client, "prices.discount", "1", batch=batch) == [90.0]


FAULTS = {
    "BrokenEverywhere": "OSError: the weights are missing",
    "unfinished": "No module named 'a_package_that_nobody_has'",
    "twice": "is defined twice",
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_loaded_says_why_wherever_somebody_looks(
    server: Server, client: flight.FlightClient, name: str
) -> None:
    reason = FAULTS[name]
    assert reason in described(client, name).fault
    with pytest.raises(pa.ArrowInvalid, match=reason):
        call(client, name, batch=pa.record_batch({"_0": [1]}))
    assert reason in (server.ready_file.parent / "log").read_text()
    assert health(server, name) == health_pb2.HealthCheckResponse.NOT_SERVING


def test_the_others_are_served_beside_it(server: Server, client: flight.FlightClient) -> None:
    echo(client)
    for name in ("prices.discount", "echo"):
        assert described(client, name).fault == ""
        assert health(server, name) == health_pb2.HealthCheckResponse.SERVING
    assert health(server, None) == health_pb2.HealthCheckResponse.SERVING


def test_a_name_that_nobody_has_may_be_of_the_module_that_is_missing(client: flight.FlightClient) -> None:
    with pytest.raises(pa.ArrowKeyError, match=r"no function 'nobody' is registered; .*'unfinished' of --functions"):
        call(client, "nobody", batch=pa.record_batch({"_0": [1]}))


def health(server: Server, name: str | None) -> int:
    with grpc.insecure_channel(server.ready()["listen"]) as channel:
        asked = "" if name is None else f"updraft.function/{name}"
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=asked), timeout=60)
        return int(reply.status)
