# SPDX-License-Identifier: Apache-2.0
"""Flight clients that behave like two SQL engines: they send the same messages and read answers in the same way.

Neither engine runs here. The messages, headers, types and checks are those of RisingWave (crate `arrow-udf-runtime`)
and Databend (its `UDFFlightClient`) as of 2026; both engines are written in Rust, on tonic and arrow-rs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pyarrow as pa

from tests.support.flight import (
    MESSAGE_LIMIT,
    PATH,
    SERVICE,
    Action,
    FlightData,
    FlightDescriptor,
    FlightInfo,
    Result,
    encapsulated,
    ipc_parts,
)

# Limit for a whole call, longer than any engine's own limit. Only a hanging call exceeds it.
_CALL_TIMEOUT_SECONDS = 60
_DATABEND_BATCH_ROWS = 65_536


class EngineError(Exception):
    """Raised when an engine refuses a function or an answer; the message says why."""


@dataclass(frozen=True)
class Signature:
    """Function's signature according to `GetFlightInfo`."""

    arguments: list[pa.Field]
    results: list[pa.Field]


class _Engine:
    """Channel with Flight's calls and an engine's headers."""

    def __init__(self, address: str, headers: dict[str, str], user_agent: str, *, is_old: bool = False) -> None:
        limits = [] if is_old else MESSAGE_LIMIT
        self._channel = grpc.insecure_channel(address, options=[*limits, ("grpc.primary_user_agent", user_agent)])
        self._metadata = tuple(headers.items())

    def close(self) -> None:
        self._channel.close()

    def flight_info(self, name: str) -> Any:
        call = self._channel.unary_unary(
            SERVICE + "GetFlightInfo",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=FlightInfo.FromString,
        )
        return call(_descriptor(name), metadata=self._metadata, timeout=_CALL_TIMEOUT_SECONDS)

    def exchanged(self, messages: Iterable[Any]) -> list[pa.RecordBatch]:
        """Return the answer's batches; raise grpc.RpcError."""
        call = self._channel.stream_stream(
            SERVICE + "DoExchange",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=FlightData.FromString,
        )(iter(messages), metadata=self._metadata, timeout=_CALL_TIMEOUT_SECONDS)
        parts = [encapsulated(message.data_header, message.data_body) for message in call if message.data_header]
        return list(pa.ipc.open_stream(pa.py_buffer(b"".join(parts))))


class RisingWave(_Engine):
    """Client that calls a function for one chunk of rows at a time, without credentials."""

    def __init__(self, address: str, *, is_old: bool = False) -> None:
        """Connect; an old version accepts messages up to gRPC's default of 4 MiB."""
        super().__init__(address, {}, "tonic/0.14.2", is_old=is_old)
        self.protocol_version = self._protocol_version()

    def create_function(self, name: str, arguments: Sequence[pa.DataType], returns: pa.DataType) -> None:
        """Check a function like `CREATE FUNCTION ... AS name USING LINK ...`; raise EngineError."""
        self._check(name, arguments, [returns])

    def create_table_function(self, name: str, arguments: Sequence[pa.DataType], returns: pa.DataType) -> None:
        """Check a function with `RETURNS TABLE (...)`; several columns are a struct. Raise EngineError."""
        self._check(name, arguments, [pa.int32(), returns])

    def call(self, name: str, columns: Sequence[pa.Array], rows: int = 1, extensions: Sequence[str] = ()) -> pa.Array:
        """Return the results of a chunk; raise EngineError.

        `rows` matters only for a function without arguments. `extensions` names the types of the first columns that
        Arrow does not have, such as "arrowudf.decimal".
        """
        batches = self.exchanged(self.chunk(name, columns, rows, extensions))
        # The crate concatenates the batches, and the engine reads the first column.
        answer = pa.Table.from_batches(batches).combine_chunks()
        expected = len(columns[0]) if columns else rows
        if answer.num_rows != expected:
            raise EngineError(f"UDF returned {answer.num_rows} rows, but expected {expected}")
        if answer.num_columns != 1:
            raise EngineError("the second column would be taken for errors")
        return answer.column(0).chunk(0)

    def call_table(
        self, name: str, columns: Sequence[pa.Array], extensions: Sequence[str] = ()
    ) -> list[tuple[int, Any]]:
        """Return pairs of a row number of the chunk and a result; `extensions` as in `call`. Raise EngineError."""
        found: list[tuple[int, Any]] = []
        for batch in self.exchanged(self.chunk(name, columns, extensions=extensions)):
            if batch.num_columns != 2 or batch.schema.field(0).type != pa.int32():
                raise EngineError(f"expected int32 and a value: {batch.schema}")
            numbers = batch.column(0).to_pylist()
            if any(not 0 <= number < len(columns[0]) for number in numbers):
                raise EngineError("a row number is not one of the chunk")
            found += zip(numbers, batch.column(1).to_pylist(), strict=True)
        return found

    def _protocol_version(self) -> int:
        call: Iterator[Any] = self._channel.unary_stream(
            SERVICE + "DoAction",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=Result.FromString,
        )(Action(type="protocol_version"), timeout=_CALL_TIMEOUT_SECONDS)
        try:
            return int(next(call).body[0])
        except grpc.RpcError:
            # The crate treats any error as the answer of a server that is older than the versions.
            return 1

    def _check(self, name: str, arguments: Sequence[pa.DataType], returns: Sequence[pa.DataType]) -> None:
        info = self.flight_info(name)
        fields = list(_schema(info))
        if not 0 <= info.total_records <= len(fields):
            raise EngineError(f"invalid input_number: {info.total_records}")
        remote = Signature(fields[: info.total_records], fields[info.total_records :])
        for what, declared, given in (("argument", arguments, remote.arguments), ("return", returns, remote.results)):
            found = [field.type for field in given]
            if len(declared) != len(found) or not all(map(_same_datatype, declared, found)):
                raise EngineError(f"{what} type mismatch, expect: {list(declared)}, actual: {found}")

    @staticmethod
    def chunk(name: str, columns: Sequence[pa.Array], rows: int = 1, extensions: Sequence[str] = ()) -> Iterator[Any]:
        """Yield the messages of a call; the arguments are those of `call`."""
        # The fields have no names, and each message has the descriptor.
        fields = [pa.field("", column.type, nullable=True) for column in columns]
        for number, extension in enumerate(extensions):
            fields[number] = fields[number].with_metadata({"ARROW:extension:name": extension})
        schema = pa.schema(fields)
        for header, body in ipc_parts(schema, [_batch(columns, schema, rows)]):
            yield FlightData(flight_descriptor=_descriptor(name), data_header=header, data_body=body)


class Databend(_Engine):
    """Client that calls a function for a block of rows, and a table function for one row of constants."""

    def __init__(self, address: str, *, tenant: str = "default", headers: dict[str, str] | None = None) -> None:
        """Connect; `headers` are those of `CREATE FUNCTION ... HEADERS = (...)`."""
        own = {"x-databend-tenant": tenant, "x-databend-query-id": "8a1b5f30-0001-4d5c-9c8e-000000000001"}
        super().__init__(address, {**own, **(headers or {})}, "databend-query/1.2.900")

    def create_function(self, name: str, arguments: Sequence[pa.Field], returns: pa.Field) -> None:
        """Check a function like `CREATE FUNCTION ... HANDLER = name ADDRESS = ...`; raise EngineError."""
        *inputs, output = list(_schema(self.flight_info(name)))
        declared, remote = [list(map(_databend_type, fields)) for fields in (arguments, inputs)]
        # The engine ignores surplus types on either side.
        if any(one != other for one, other in zip(remote, declared, strict=False)):
            raise EngineError(f"UDF arg types mismatch, remote arg types: {remote}, defined arg types: {declared}")
        if _databend_type(output) != _databend_type(returns):
            raise EngineError(f"UDF return type mismatch: {_databend_type(output)}, {_databend_type(returns)}")

    def call(self, name: str, columns: Sequence[pa.Array], fields: Sequence[pa.Field], returns: pa.Field) -> pa.Array:
        """Return the results of a block; the fields are those of CREATE FUNCTION. Raise EngineError."""
        answer = self._answer(name, columns, fields)
        expected = len(columns[0]) if columns else 1
        if answer.num_rows != expected:
            raise EngineError(f"UDF server should return {expected} rows, but it returned {answer.num_rows} rows")
        if _databend_type(answer.schema.field(0)) != _databend_type(returns):
            raise EngineError(f"UDF server return incorrect type: {answer.schema.field(0)}")
        # The engine checks the first column, but reads the last one.
        return answer.columns[-1].chunk(0)

    def call_table(
        self, name: str, constants: Sequence[pa.Array], fields: Sequence[pa.Field], returns: Sequence[pa.Field]
    ) -> list[dict[str, Any]]:
        """Return the rows for one row of constants; raise EngineError."""
        answer = self._answer(name, constants, fields)
        if [_databend_type(field) for field in answer.schema] != [_databend_type(field) for field in returns]:
            raise EngineError(f"UDF server return incorrect type: {answer.schema}")
        return list(answer.to_pylist())

    def _answer(self, name: str, columns: Sequence[pa.Array], fields: Sequence[pa.Field]) -> pa.Table:
        wire = [
            pa.field(f"arg{number}", _databend_wire(field.type), field.nullable)
            for number, field in enumerate(fields, start=1)
        ]
        sent = [column.cast(field.type) for column, field in zip(columns, wire, strict=True)]
        batches = self.exchanged(self._blocks(name, sent, pa.schema(wire)))
        if not batches or not (answer := pa.Table.from_batches(batches).combine_chunks()).num_rows:
            raise EngineError("Get empty data from UDF Server")
        return answer

    @staticmethod
    def _blocks(name: str, columns: Sequence[pa.Array], schema: pa.Schema) -> Iterator[Any]:
        block = _batch(columns, schema, 1)
        starts = range(0, block.num_rows, _DATABEND_BATCH_ROWS)
        (header, _), *parts = ipc_parts(schema, [block.slice(start, _DATABEND_BATCH_ROWS) for start in starts])
        yield FlightData(flight_descriptor=_descriptor(name), data_header=header)
        for header, body in parts:
            yield FlightData(data_header=header, data_body=body)


@contextmanager
def risingwave(address: str, *, is_old: bool = False) -> Iterator[RisingWave]:
    """Connect as RisingWave; an old version accepts messages up to 4 MiB."""
    engine = RisingWave(address, is_old=is_old)
    yield engine
    engine.close()


@contextmanager
def databend(address: str, *, tenant: str = "default", headers: dict[str, str] | None = None) -> Iterator[Databend]:
    """Connect as Databend."""
    engine = Databend(address, tenant=tenant, headers=headers)
    yield engine
    engine.close()


def _descriptor(name: str) -> Any:
    return FlightDescriptor(type=PATH, path=[name])


def _schema(info: Any) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(info.schema))


def _batch(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if columns:
        return pa.record_batch(list(columns), schema=schema)
    return pa.record_batch([pa.nulls(rows)], ["_"]).select([])


def _same_datatype(one: pa.DataType, other: pa.DataType) -> bool:
    """Compare like arrow-rs' `equals_datatype`, which ignores names within a type but not nullability."""
    parts = [[kind.field(index) for index in range(kind.num_fields)] for kind in (one, other)]
    if not parts[0] or one.id != other.id:
        return bool(one == other)
    return len(parts[0]) == len(parts[1]) and all(
        mine.nullable == theirs.nullable and _same_datatype(mine.type, theirs.type)
        for mine, theirs in zip(*parts, strict=True)
    )


def _databend_type(field: pa.Field) -> str:
    """Return Databend's name for the type of an Arrow field, nullability included."""
    name = _databend_name(field.type)
    return f"Nullable({name})" if field.nullable else name


def _databend_name(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "String"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return "Binary"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"Array({_databend_type(kind.value_field)})"
    if types.is_struct(kind):
        return f"Tuple({', '.join(_databend_type(kind.field(index)) for index in range(kind.num_fields))})"
    if types.is_decimal(kind):
        return f"Decimal({kind.precision}, {kind.scale})"
    if types.is_timestamp(kind):
        return "Timestamp"
    return "Date" if types.is_date(kind) else str(kind)


def _databend_wire(kind: pa.DataType) -> pa.DataType:
    """Return the type in which Databend sends values of this type."""
    types = pa.types
    if types.is_string(kind):
        return pa.string_view()
    if types.is_binary(kind):
        return pa.large_binary()
    if types.is_list(kind):
        return pa.large_list(kind.value_field.with_type(_databend_wire(kind.value_type)))
    if types.is_timestamp(kind):
        return pa.timestamp("us")
    if types.is_decimal(kind) and kind.precision <= 18:
        return pa.decimal64(kind.precision, kind.scale)
    return kind
