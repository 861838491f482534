# SPDX-License-Identifier: Apache-2.0
"""Plain pyarrow.flight client, without any part of Updraft, that calls a pool."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from tests.support.pool import LocalPool
from updraft.protocol import PROTOCOL_VERSION
from updraft.v1 import control_pb2

ECHO = flight.FlightDescriptor.for_path("echo")

TABLES = {
    "ints": pa.table({"a": pa.array([1, None, 3], pa.int32()), "b": pa.array([2**63 - 1, -(2**63), 0])}),
    "floats": pa.table({"x": pa.array([0.0, -0.0, float("nan"), None]), "y": pa.array([1.5] * 4, pa.float32())}),
    "strings": pa.table({"s": ["", "a\0b", "žluťoučký 🐎", None, "x" * 100_000]}),
    "large_strings": pa.table({"s": pa.array(["", None, "b"], pa.large_string())}),
    "binary": pa.table({"b": [b"", b"\0\xff", None]}),
    "booleans": pa.table({"b": [True, None, False]}),
    "decimals": pa.table({"d": pa.array([decimal.Decimal("1.10"), None], pa.decimal128(38, 18))}),
    "times": pa.table(
        {
            "date": [datetime.date(1, 1, 1), None],
            "instant": pa.array([0, None], pa.timestamp("us", "UTC")),
            "local": pa.array([0, None], pa.timestamp("us")),
            "length": pa.array([1, None], pa.duration("us")),
        }
    ),
    "lists": pa.table({"l": [[1, None], [], None]}),
    "maps": pa.table({"m": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64()))}),
    "structs": pa.table({"s": [{"a": 1, "b": [{"c": "x"}]}, None]}),
    "nulls": pa.table({"n": pa.nulls(3)}),
    "no_rows": pa.table({"a": pa.array([], pa.int64())}),
    "metadata": pa.table({"a": [1]}).replace_schema_metadata({"who": "me"}),
}


@pytest.fixture(params=["tcp", "unix"])
def client(request: pytest.FixtureRequest, pool: LocalPool) -> Iterator[flight.FlightClient]:
    location = f"grpc://{pool.tcp_address}" if request.param == "tcp" else f"grpc+unix://{pool.unix_socket}"
    with flight.connect(location) as client:
        yield client


def _echo(client: flight.FlightClient, table: pa.Table, descriptor: flight.FlightDescriptor = ECHO) -> pa.Table:
    # Written on a separate thread: a client that writes everything before it reads can fill both windows.
    writer, reader = client.do_exchange(descriptor, flight.FlightCallOptions(timeout=60))
    with writer:
        writer.begin(table.schema)

        def write() -> None:
            # Any failure here also fails the reader, which reports it.
            with contextlib.suppress(pa.ArrowException, KeyError, OSError):
                write_all()

        def write_all() -> None:
            for batch in table.to_batches(max_chunksize=2) or [pa.RecordBatch.from_pylist([], table.schema)]:
                writer.write_batch(batch)
            writer.done_writing()

        sender = threading.Thread(target=write)
        sender.start()
        try:
            return reader.read_all()
        finally:
            sender.join(timeout=60)


@pytest.mark.parametrize("name", TABLES)
def test_echo_returns_what_it_was_sent(client: flight.FlightClient, name: str) -> None:
    answer = _echo(client, TABLES[name])
    assert answer.schema.equals(TABLES[name].schema)
    assert repr(answer.to_pydict()) == repr(TABLES[name].to_pydict())


def test_a_function_can_be_called_by_name_and_version(client: flight.FlightClient) -> None:
    version = next(f.version for f in _status(client).functions if f.name == "echo")
    answer = _echo(client, TABLES["ints"], flight.FlightDescriptor.for_path("echo", version))
    assert answer.equals(TABLES["ints"])


def test_many_batches_in_turn(client: flight.FlightClient) -> None:
    table = pa.table({"x": range(1000)})
    assert _echo(client, table).equals(table)


def test_an_unknown_function_is_not_found(client: flight.FlightClient) -> None:
    with pytest.raises(KeyError, match="no_such_function"):
        _echo(client, TABLES["ints"], flight.FlightDescriptor.for_path("no_such_function"))


def test_an_unknown_version_is_not_found(client: flight.FlightClient) -> None:
    with pytest.raises(KeyError, match="echo"):
        _echo(client, TABLES["ints"], flight.FlightDescriptor.for_path("echo", "0.0.0-none"))


def test_functions_are_listed(client: flight.FlightClient) -> None:
    paths = [info.descriptor.path for info in client.list_flights()]
    assert [b"echo"] in [path[:1] for path in paths]


def test_one_function_is_described(client: flight.FlightClient) -> None:
    assert client.get_flight_info(ECHO).descriptor.path[0] == b"echo"


def test_describing_an_unknown_function_is_not_found(client: flight.FlightClient) -> None:
    with pytest.raises(KeyError, match="no_such_function"):
        client.get_flight_info(flight.FlightDescriptor.for_path("no_such_function"))


def test_actions_are_listed(client: flight.FlightClient) -> None:
    listed = {action.type for action in client.list_actions()}
    assert listed == {
        *("updraft.pool_status", "updraft.whoami", "updraft.output", "updraft.profile", "protocol_version")
    }


def test_the_pools_status_names_its_versions_and_functions(client: flight.FlightClient) -> None:
    status = _status(client)
    assert status.protocol_version == PROTOCOL_VERSION
    assert status.state == control_pb2.POOL_STATE_READY
    assert status.session_functions_allowed
    assert status.python_version
    assert status.pyspark_version
    assert "echo" in [function.name for function in status.functions]


def _do_put(client: flight.FlightClient) -> None:
    writer, reader = client.do_put(ECHO, pa.schema({"a": pa.int64()}))
    with writer:
        writer.done_writing()
        reader.read()


REFUSED: dict[str, tuple[Callable[[flight.FlightClient], object], type[Exception], str]] = {
    "do_get": (lambda client: client.do_get(flight.Ticket(b"x")).read_all(), NotImplementedError, "unimplemented"),
    "do_put": (_do_put, NotImplementedError, "unimplemented"),
    "get_schema": (lambda client: client.get_schema(ECHO), NotImplementedError, "unimplemented"),
    "an unknown action": (
        lambda client: list(client.do_action(flight.Action("no.such.action", b""))),
        pa.ArrowInvalid,
        r"no action 'no\.such\.action': this pool has updraft\.pool_status",
    ),
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_a_pool_does_not_do_is_refused_in_the_words_of_flight(client: flight.FlightClient, call: str) -> None:
    ask, error, words = REFUSED[call]
    with pytest.raises(error, match=words):
        ask(client)


def _status(client: flight.FlightClient) -> control_pb2.PoolStatus:
    (result,) = client.do_action(flight.Action("updraft.pool_status", b""))
    return control_pb2.PoolStatus.FromString(result.body.to_pybytes())
