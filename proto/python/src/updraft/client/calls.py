# SPDX-License-Identifier: Apache-2.0
"""Parts of a call that the blocking and the asynchronous client share."""

import contextlib
import json
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyarrow import flight

from updraft.client.called_function import CalledFunction, fit
from updraft.client.connection import Connection
from updraft.client.retries import RETRY_AFTER, Failure, Retries, failure_of
from updraft.errors import DeadlineError, UpdraftError
from updraft.v1.control_pb2 import FunctionDescription

ANY_FIELDS: Mapping[str, str] = MappingProxyType({})


def retries_of(connection: Connection) -> Retries:
    """Return the retries of one call."""
    return Retries(
        str(connection.endpoint),
        acquire_timeout_seconds=connection.acquire_timeout_seconds,
        connect_timeout_seconds=connection.connect_timeout_seconds,
        now=time.monotonic(),
    )


def flight_path(name: str) -> bytes:
    """Return the Flight descriptor of a function."""
    return bytes(flight.FlightDescriptor.for_path(name).serialize())


def rest_of(deadline: float | None) -> float | None:
    """Return the remaining seconds of a call; raise DeadlineError if its deadline has passed."""
    if deadline is None:
        return None
    rest = deadline - time.monotonic()
    if rest <= 0:
        raise DeadlineError("the call's deadline (timeout_seconds) has passed")
    return rest


def with_traceback(error: UpdraftError) -> UpdraftError:
    """Add the remote traceback to the notes of an error, so that Python prints it."""
    if error.traceback:
        error.add_note(f"the function's traceback, from the pool:\n{error.traceback.rstrip()}")
    return error


def failure_in(error: Any, in_band: UpdraftError | None) -> Failure:
    """Return the failure of a call that ended with a gRPC error; prefer an error that the pool sent in-band."""
    hint = 0
    for name, value in error.trailing_metadata() or ():
        if name == RETRY_AFTER:
            with contextlib.suppress(ValueError):
                hint = int(value)
    return failure_of(in_band, error.code().name, error.details() or "", hint)


def with_schema(arguments: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return arguments cast to the schema of the first table.

    Raises:
        ValueError: The columns have other names, or a value does not fit.
        TypeError: A column has another type, and a cast could change values.
    """
    if arguments.schema.equals(schema):
        return arguments
    if arguments.schema.names != schema.names:
        raise ValueError(
            f"a later table has the columns {', '.join(arguments.schema.names)}, and the first had "
            f"{', '.join(schema.names)}"
        )
    columns = [
        fit(arguments.column(field.name), field.type, f"column {field.name!r} of the first table") for field in schema
    ]
    return pa.table(columns, schema=schema)


def results_as_table(results: list[pa.RecordBatch], function: CalledFunction, inputs: pa.Schema) -> pa.Table:
    """Return all results of a call, or an empty table, which has no columns if the columns are unknown."""
    if results:
        return pa.Table.from_batches(results)
    empty = function.empty_results(inputs)
    return empty if empty is not None else pa.table({})


def description_in(flight_info: bytes) -> FunctionDescription:
    """Return the description in the pool's answer to GetFlightInfo."""
    return FunctionDescription.FromString(flight.FlightInfo.deserialize(flight_info).app_metadata)


def output_action(
    connection: Connection,
    *,
    of_all: bool,
    fields: Mapping[str, str],
    lines: int,
    after_microseconds: int,
    wait_seconds: float,
) -> bytes:
    """Return the Flight action that asks for the output of functions."""
    query = {
        "fields": dict(fields),
        "lines": lines,
        "wait_seconds": wait_seconds,
        "after_microseconds": after_microseconds,
    }
    return _action(connection, "updraft.all_output" if of_all else "updraft.output", query)


def profile_action(connection: Connection, name: str, *, seconds: float, of_all: bool) -> bytes:
    """Return the Flight action that samples running functions."""
    action = "updraft.all_profiles" if of_all else "updraft.profile"
    return _action(connection, action, {"function": name, "seconds": seconds})


def _action(connection: Connection, action: str, query: Mapping[str, Any]) -> bytes:
    body = json.dumps({**query, "log_key": connection.log_key}).encode()
    return bytes(flight.Action(action, body).serialize())


def result_in(answer: bytes) -> dict[str, Any]:
    """Return the object in the pool's answer to an action."""
    return dict(json.loads(flight.Result.deserialize(answer).body.to_pybytes()))
