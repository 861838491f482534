# SPDX-License-Identifier: Apache-2.0
"""Attempts of a pool's clients with message contents: absurd numbers, unbounded sizes, names, hostile Arrow."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tests.attacks.clients import BATCH, MIB, ROW, SCHEMA, admitted, broadcast, command, opened
from tests.attacks.outsiders import ClientAttempts, Conversation, Outsider
from tests.support.flight import PATH, FlightData, FlightDescriptor, echo_command, first_message, numbered
from updraft.v1.exchange_pb2 import DeferredPayload, ExchangeCommand, KeepAlive, RequestMetadata

ATTEMPTS = ClientAttempts()

_MOST, _LEAST = (1 << 63) - 1, -(1 << 63)
_LONGEST_MESSAGE = 64 * MIB
_CONTROL = 'x\n{"event": "forged"}\r\x1b[2J\x00\u2028\u202e'


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _with(part: str, **values: Any) -> ExchangeCommand:
    """Return an honest command with these values in its limits, its task or its session (`part`)."""
    made = command()
    for name, value in values.items():
        setattr(getattr(made, part), name, value)
    return made


@ATTEMPTS("INVALID_ARGUMENT")
def asks_for_limits_below_nothing(outsider: Outsider) -> list[str]:
    odd = [_with("limits", **{name: value}) for name in _limits() for value in (-1, -(1 << 31))]
    return [opened(outsider, made).end() for made in odd]


@ATTEMPTS("OK", "INVALID_ARGUMENT", "ABORTED", "UNKNOWN")
def asks_for_limits_beyond_all_bounds(outsider: Outsider) -> list[str]:
    odd = [_with("limits", **{name: most}) for name, most in _limits().items()]
    return [_finished(opened(outsider, made).say(numbered(*BATCH, 1)), 1) for made in odd]


def _limits() -> dict[str, int]:
    """Return the largest value of each limit."""
    return {
        limit.name: (1 << 31) - 1 if limit.cpp_type == limit.CPPTYPE_INT32 else _MOST
        for limit in command().limits.DESCRIPTOR.fields
    }


@ATTEMPTS("OK", "INVALID_ARGUMENT", "UNKNOWN")
def is_a_task_of_numbers_without_sense(outsider: Outsider) -> list[str]:
    names = ("stage_id", "stage_attempt_number", "partition_id", "attempt_number", "cpus")
    odd = [_with("task", **{name: value}) for name in names for value in (-1, -(1 << 31))]
    odd += [_with("task", task_attempt_id=value) for value in (_LEAST, _MOST)]
    return [_finished(opened(outsider, made).say(numbered(*BATCH, 1)), 1) for made in odd]


@ATTEMPTS("INVALID_ARGUMENT")
def defers_functions_of_sizes_without_sense(outsider: Outsider) -> list[str]:
    def deferred(size_bytes: int) -> ExchangeCommand:
        made = command()
        made.ClearField("payload")
        made.deferred_payload.CopyFrom(DeferredPayload(size_bytes=size_bytes))
        return made

    return [opened(outsider, deferred(size)).end() for size in (_LEAST, -1, 0, _LONGEST_MESSAGE + 1, _MOST)]


@ATTEMPTS("INVALID_ARGUMENT", "PERMISSION_DENIED")
def names_broadcasts_and_kinds_without_sense(outsider: Outsider) -> list[str]:
    odd = [command(broadcast(b"", broadcast_id=number)) for number in (-1, _LEAST)]
    odd += [_with("session", eval_type=kind) for kind in (-1, 99, (1 << 31) - 1, -(1 << 31))]
    return [opened(outsider, made).end() for made in odd]


@ATTEMPTS("INVALID_ARGUMENT")
def counts_as_nobody_can(outsider: Outsider) -> list[str]:
    wrong = [numbered(*BATCH, 0), numbered(*BATCH, 2), numbered(*BATCH, (1 << 64) - 1), _finish(7), _finish(0, rows=1)]
    return [admitted(opened(outsider, command())).say(message).end() for message in wrong]


@ATTEMPTS("INVALID_ARGUMENT")
def groups_rows_that_are_not_there(outsider: Outsider) -> list[str]:
    statuses = []
    for metadata in (RequestMetadata(sequence=1, group_ends=[(1 << 32) - 1, 0]), RequestMetadata(sequence=1, input=9)):
        message = FlightData(data_header=BATCH[0], data_body=BATCH[1], app_metadata=metadata.SerializeToString())
        statuses.append(admitted(opened(outsider, command())).say(message).end())
    return statuses


@ATTEMPTS("INVALID_ARGUMENT")
def sends_a_command_of_megabytes(outsider: Outsider) -> list[str]:
    made = command()
    made.payload = bytes(5 * MIB)
    return [opened(outsider, made).end()]


@ATTEMPTS("RESOURCE_EXHAUSTED", "CANCELLED", "DEADLINE_EXCEEDED", "INVALID_ARGUMENT")
def lets_commands_wait_that_swell_when_they_are_parsed(outsider: Outsider) -> list[str]:
    properties = {f"{number:x}": "" for number in range(300_000)}
    made = command()
    made.task.local_properties.update(properties)
    exchanges = []
    for number in range(20):
        made.task.owner.application_id = f"app-{number}"
        exchanges.append(outsider.exchange(first_message(made, SCHEMA[0]), over=outsider.connection()))
    exchanges[0].end()
    return [exchange.leave() for exchange in exchanges]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_messages_of_nothing_but_fields(outsider: Outsider) -> list[str]:
    many = 30 * MIB
    descriptor = _field(1, b"\x08\x01" + b"\x1a\x00" * many)
    exchanges = [outsider.exchange(b"\x12\x00" * many), outsider.exchange(descriptor)]
    exchanges.append(opened(outsider, command()).say(b"\x12\x00" * many))
    return [exchange.end() for exchange in exchanges]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_metadata_that_swells_when_it_is_parsed(outsider: Outsider) -> list[str]:
    alive = RequestMetadata(keep_alive=KeepAlive()).SerializeToString() + _field(3, b"\x01" * (60 * MIB))
    waiting = opened(outsider, command(broadcast(bytes(1000)))).say(FlightData(app_metadata=alive))
    running = admitted(opened(outsider, command())).say(FlightData(app_metadata=alive))
    return [waiting.end(), running.end()]


@ATTEMPTS("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")
def sends_messages_beyond_the_limit(outsider: Outsider) -> list[str]:
    first = FlightData(data_body=bytes(_LONGEST_MESSAGE + MIB))
    later = FlightData(data_header=BATCH[0], data_body=bytes(2 * _LONGEST_MESSAGE + MIB))
    return [outsider.exchange(first).end(), admitted(opened(outsider, command())).say(later).end()]


@ATTEMPTS("RESOURCE_EXHAUSTED", "UNAVAILABLE")
def sends_headers_of_megabytes(outsider: Outsider) -> list[str]:
    # The service closes the connection, so each attempt opens a new connection.
    long = [("x-updraft-tenant", "t" * size) for size in (100_000, 4 * MIB)]
    many = [(f"x-{number}", "v" * 100) for number in range(20_000)]
    return [
        outsider.exchange(headers=(*outsider.headers, *headers), over=outsider.connection()).end()
        for headers in ([long[0]], [long[1]], many)
    ]


@ATTEMPTS("NOT_FOUND", "PERMISSION_DENIED")
def writes_into_the_log_by_names(outsider: Outsider) -> list[str]:
    named = [outsider.exchange(first_message(echo_command(name=name), SCHEMA[0])) for name in (_CONTROL, "n" * MIB)]
    path = FlightDescriptor(type=PATH, path=[_CONTROL])
    named.append(outsider.exchange(FlightData(flight_descriptor=path, data_header=SCHEMA[0])))
    owner = _with("session", eval_type=-1)
    owner.task.owner.application_id = _CONTROL * 1000
    return [exchange.end() for exchange in (*named, opened(outsider, owner))]


def _finish(batches: int, rows: int | None = None) -> Any:
    metadata = RequestMetadata()
    metadata.finish.batches, metadata.finish.rows = batches, batches * ROW.num_rows if rows is None else rows
    return FlightData(app_metadata=metadata.SerializeToString())


_ARROW: list[Callable[[], tuple[bytes, list[Any]]]] = []


def hostile_arrow() -> list[tuple[bytes, list[Any]]]:
    """Return hostile schemas, each with its messages: invalid Arrow, or Arrow that uses more memory than its bytes."""
    return [made() for made in _ARROW]


def _hostile_arrow(name: str) -> Callable[[Callable[[], tuple[bytes, list[Any]]]], Any]:
    """Return a decorator that adds an attempt with a hostile schema and its messages."""

    def add(made: Callable[[], tuple[bytes, list[Any]]]) -> Any:
        @ATTEMPTS("INVALID_ARGUMENT", name=f"sends_{name}")
        def send(outsider: Outsider) -> list[str]:
            schema, messages = made()
            return [opened(outsider, command(), schema).say(*messages).end()]

        _ARROW.append(made)
        return made

    return add


def _header(schema: pa.Schema) -> bytes:
    """Return Arrow's header of a schema, even of a schema that Arrow could not read back."""
    encapsulated = schema.serialize().to_pybytes()
    return bytes(encapsulated[8 : 8 + int.from_bytes(encapsulated[4:8], "little")])


def _one_of(array: pa.Array, options: pa.ipc.IpcWriteOptions | None = None) -> tuple[bytes, list[Any]]:
    """Return the header of the schema, and the messages of a batch with one column."""
    batch = pa.record_batch({"_0": array})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    messages = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))[1:]
    parts = [(m.metadata.to_pybytes(), m.body.to_pybytes() if m.body is not None else b"") for m in messages]
    return _header(batch.schema), [numbered(*part, number) for number, part in enumerate(parts, start=1)]


@_hostile_arrow("a_body_that_unpacks_to_gigabytes")
def _compressed() -> tuple[bytes, list[Any]]:
    return _one_of(pa.array([0] * MIB, pa.int64()), pa.ipc.IpcWriteOptions(compression="zstd"))


@_hostile_arrow("lists_of_nothing_without_end")
def _lists_of_nothing() -> tuple[bytes, list[Any]]:
    schema = pa.schema({"_0": pa.list_(pa.null(), 1 << 30)})
    _, (message,) = _one_of(pa.FixedSizeListArray.from_arrays(pa.nulls(777), 1))
    # The header contains the number 777 as the length of the batch, of the lists and, last, of the lists' values.
    before, _, after = message.data_header.rpartition(struct.pack("<q", 777))
    return _header(schema), [numbered(before + struct.pack("<q", 777 << 30) + after, b"", 1)]


@_hostile_arrow("more_nulls_than_any_batch_has_rows")
def _nulls() -> tuple[bytes, list[Any]]:
    schema, (message,) = _one_of(pa.nulls(777))
    return schema, [numbered(message.data_header.replace(struct.pack("<q", 777), struct.pack("<q", 1 << 40)), b"", 1)]


@_hostile_arrow("a_dictionary")
def _dictionary() -> tuple[bytes, list[Any]]:
    return _one_of(pa.DictionaryArray.from_arrays(pa.array([0] * 10, pa.int32()), pa.array(["x" * MIB])))


@_hostile_arrow("nesting_without_end")
def _nesting() -> tuple[bytes, list[Any]]:
    nested = pa.null()
    for _ in range(200):
        nested = pa.list_(nested)
    return _header(pa.schema({"_0": nested})), []


@_hostile_arrow("columns_without_number")
def _columns() -> tuple[bytes, list[Any]]:
    fields = [pa.field(f"_{number}", pa.null()) for number in range(40_000)]
    return _header(pa.schema(fields)), []


@_hostile_arrow("buffers_that_share_their_bytes")
def _shared() -> tuple[bytes, list[Any]]:
    schema, (message,) = _one_of(pa.array(range(1000), pa.int64()))
    # Claim more bytes for the buffer of values than the message contains.
    header = message.data_header.replace(struct.pack("<qq", 0, 8000), struct.pack("<qq", 0, 1 << 40))
    return schema, [numbered(header, message.data_body, 1)]


@_hostile_arrow("lengths_below_nothing")
def _negative() -> tuple[bytes, list[Any]]:
    schema, (message,) = _one_of(pa.array(range(777), pa.int64()))
    header = message.data_header.replace(struct.pack("<q", 777), struct.pack("<q", -777))
    return schema, [numbered(header, message.data_body, 1)]


@_hostile_arrow("a_schema_twice")
def _schema_twice() -> tuple[bytes, list[Any]]:
    return SCHEMA[0], [numbered(*SCHEMA, 1)]


@_hostile_arrow("a_batch_before_the_schema")
def _batch_first() -> tuple[bytes, list[Any]]:
    return BATCH[0], [numbered(*BATCH, 1)]


@_hostile_arrow("offsets_that_point_outside")
def _offsets() -> tuple[bytes, list[Any]]:
    schema, (message,) = _one_of(pa.array(["x"] * 100))
    return schema, [numbered(message.data_header, b"\xff" * len(message.data_body), 1)]


@_hostile_arrow("bytes_of_noise")
def _noise() -> tuple[bytes, list[Any]]:
    return SCHEMA[0], [numbered(b"\xff" * 1000, b"\xff" * 1000, 1)]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_a_value_once_for_a_million_rows_of_plain_flight(outsider: Outsider) -> list[str]:
    indexes = pa.repeat(pa.scalar(0, pa.int8()), 1_000_000)
    schema, messages = _one_of(pa.DictionaryArray.from_arrays(indexes, pa.array(["x" * MIB])))
    return [_plain(outsider, schema).say(*messages).half_close().end()]


@ATTEMPTS("INVALID_ARGUMENT")
def sends_dictionaries_without_end(outsider: Outsider) -> list[str]:
    schema, (dictionary, _) = _one_of(pa.array(["x" * MIB]).dictionary_encode())
    return [_plain(outsider, schema).say(*[dictionary] * 100).half_close().end()]


def _plain(outsider: Outsider, schema: bytes) -> Conversation:
    path = FlightDescriptor(type=PATH, path=["echo"])
    return outsider.exchange(FlightData(flight_descriptor=path, data_header=schema))


@ATTEMPTS("OK", "INVALID_ARGUMENT", "UNKNOWN", "ABORTED")
def sends_list_views_that_share_their_values(outsider: Outsider) -> list[str]:
    # The pool passes such values to the function unchanged, and the worker's memory limit covers what the function
    # makes of them.
    schema, messages = _one_of(pa.ListViewArray.from_arrays([0] * 1000, [1000] * 1000, pa.array(range(1000))))
    return [_finished(opened(outsider, command(), schema).say(*messages), 1000)]


@ATTEMPTS("OK", "INVALID_ARGUMENT", "UNKNOWN", "ABORTED")
def sends_lists_of_booleans_of_which_a_bit_becomes_many_bytes(outsider: Outsider) -> list[str]:
    rows, size = 1000, 64_000
    values = pa.Array.from_buffers(pa.bool_(), rows * size, [None, pa.py_buffer(bytes(rows * size // 8))])
    schema, messages = _one_of(pa.FixedSizeListArray.from_arrays(values, size))
    return [_finished(opened(outsider, command(), schema).say(*messages), rows)]


def _finished(exchange: Conversation, rows: int) -> str:
    return exchange.say(_finish(1, rows)).half_close().end()
