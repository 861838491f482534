# SPDX-License-Identifier: Apache-2.0
"""Flight client of bare gRPC messages, which can also send malformed ones.

It shares no code with either side of Updraft except the generated messages of the contract. It defines Flight's own few
messages itself, because pyarrow does not export them.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import grpc
import pyarrow as pa
import pyspark
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from updraft.protocol import PROTOCOL_VERSION
from updraft.v1 import control_pb2, exchange_pb2, write_pb2

SERVICE = "/arrow.flight.protocol.FlightService/"
_CALL_TIMEOUT_SECONDS = 60
MESSAGE_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def _flight_messages() -> dict[str, Any]:
    """Return the messages of Flight that are used here, with the field numbers of Arrow's Flight.proto."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="tests/flight.proto", package="tests.flight", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int] | tuple[str, int, int, str]) -> None:
        entry = file.message_type.add(name=name)
        for label, number, kind, *reference in fields:
            repeated = label == "path"
            entry.field.add(
                name=label,
                number=number,
                type=cast("Any", kind),
                label=kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL,
                type_name=reference[0] if reference else None,
            )

    message(
        "FlightDescriptor", ("type", 1, kinds.TYPE_INT32), ("cmd", 2, kinds.TYPE_BYTES), ("path", 3, kinds.TYPE_STRING)
    )
    message(
        "FlightData",
        ("flight_descriptor", 1, kinds.TYPE_MESSAGE, ".tests.flight.FlightDescriptor"),
        ("data_header", 2, kinds.TYPE_BYTES),
        ("app_metadata", 3, kinds.TYPE_BYTES),
        ("data_body", 1000, kinds.TYPE_BYTES),
    )
    message("Action", ("type", 1, kinds.TYPE_STRING), ("body", 2, kinds.TYPE_BYTES))
    message("Result", ("body", 1, kinds.TYPE_BYTES))
    message(
        "FlightInfo",
        ("schema", 1, kinds.TYPE_BYTES),
        ("flight_descriptor", 2, kinds.TYPE_MESSAGE, ".tests.flight.FlightDescriptor"),
        ("total_records", 4, kinds.TYPE_INT64),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tests.flight.{name}"))
        for name in ("FlightDescriptor", "FlightData", "Action", "Result", "FlightInfo")
    }


_MESSAGES = _flight_messages()
FlightDescriptor, FlightData = _MESSAGES["FlightDescriptor"], _MESSAGES["FlightData"]
Action, Result, FlightInfo = _MESSAGES["Action"], _MESSAGES["Result"], _MESSAGES["FlightInfo"]
PATH, CMD = 1, 2


@dataclass
class Reply:
    """Messages of an exchange's reply, in order, and its status."""

    messages: list[Any] = field(default_factory=list)
    code: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""

    @property
    def metadata(self) -> list[exchange_pb2.ReplyMetadata]:
        """Metadata (app_metadata) of every message."""
        return [exchange_pb2.ReplyMetadata.FromString(message.app_metadata) for message in self.messages]

    @property
    def error(self) -> exchange_pb2.Error:
        """Error in the last message; raises AssertionError if there is none."""
        assert self.metadata, f"no message before {self.code}: {self.details}"
        assert self.metadata[-1].WhichOneof("event") == "error", self.metadata[-1]
        return self.metadata[-1].error

    def batches(self) -> list[pa.RecordBatch]:
        """Return the record batches, read with the schema that came first."""
        parts = [encapsulated(m.data_header, m.data_body) for m in self.messages if m.data_header]
        if not parts:
            return []
        return list(pa.ipc.open_stream(pa.py_buffer(b"".join(parts))))


def ipc_parts(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> list[tuple[bytes, bytes]]:
    """Return (data_header, data_body) of the schema and of each batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return [(m.metadata.to_pybytes(), m.body.to_pybytes() if m.body is not None else b"") for m in reader]


def session_command(**changes: Any) -> exchange_pb2.ExchangeCommand:
    """Return a command for a session function of this Python and pyspark; tests never reach its payload."""
    session = exchange_pb2.SessionFunction(
        python_version=".".join(platform.python_version_tuple()[:2]),
        spark_version=pyspark.__version__,
        eval_type=250,
    )
    udf = exchange_pb2.Udf(arguments=[exchange_pb2.Argument(offset=0)], commands=[b"never unpickled"])
    for name, value in changes.items():
        setattr(session, name, value)
    return exchange_pb2.ExchangeCommand(
        protocol_version=PROTOCOL_VERSION,
        session=session,
        task=_task(),
        payload=exchange_pb2.SessionPayload(udfs=[udf]).SerializeToString(),
    )


def echo_command(*, name: str = "echo", protocol_version: int = PROTOCOL_VERSION) -> exchange_pb2.ExchangeCommand:
    """Return a command for a registered function."""
    function = exchange_pb2.RegisteredFunction(name=name)
    return exchange_pb2.ExchangeCommand(protocol_version=protocol_version, registered=function, task=_task())


def _task() -> exchange_pb2.TaskIdentity:
    return exchange_pb2.TaskIdentity(
        owner=exchange_pb2.Owner(application_id="tests"), query_id="1", stage_id=1, task_attempt_id=1
    )


def first_message(command: exchange_pb2.ExchangeCommand | write_pb2.WriteCommand, schema_header: bytes) -> Any:
    """Return the first message of an exchange."""
    return FlightData(
        flight_descriptor=FlightDescriptor(type=CMD, cmd=command.SerializeToString()), data_header=schema_header
    )


def numbered(header: bytes, body: bytes, sequence: int) -> Any:
    """Return a request batch with its number."""
    metadata = exchange_pb2.RequestMetadata(sequence=sequence).SerializeToString()
    return FlightData(data_header=header, data_body=body, app_metadata=metadata)


def finishing(batches: int, rows: int) -> Any:
    """Return the last request message."""
    finish = exchange_pb2.Finish(batches=batches, rows=rows)
    return FlightData(app_metadata=exchange_pb2.RequestMetadata(finish=finish).SerializeToString())


def whole_request(
    command: exchange_pb2.ExchangeCommand, schema: pa.Schema, batches: Sequence[pa.RecordBatch]
) -> list[Any]:
    """Return the messages of a well-formed request."""
    schema_part, *parts = ipc_parts(schema, batches)
    return [
        first_message(command, schema_part[0]),
        *(numbered(header, body, index) for index, (header, body) in enumerate(parts, start=1)),
        finishing(len(batches), sum(batch.num_rows for batch in batches)),
    ]


def exchange(address: str, requests: Iterable[Any], *, timeout_seconds: float = _CALL_TIMEOUT_SECONDS) -> Reply:
    """Send the messages, half-close, and collect the reply up to the status."""
    reply = Reply()
    with grpc.insecure_channel(address, options=MESSAGE_LIMIT) as channel:
        call = channel.stream_stream(
            SERVICE + "DoExchange", request_serializer=_serialized, response_deserializer=FlightData.FromString
        )(iter(requests), timeout=timeout_seconds)
        try:
            reply.messages.extend(call)
        except grpc.RpcError as error:
            reply.code, reply.details = error.code(), error.details() or ""
    return reply


def pool_status(address: str) -> control_pb2.PoolStatus:
    """Return the answer of the action updraft.pool_status."""
    return control_pb2.PoolStatus.FromString(action(address, "updraft.pool_status"))


def action(address: str, kind: str) -> bytes:
    """Return the body of an action's only result."""
    with grpc.insecure_channel(address) as channel:
        call: Iterator[Any] = channel.unary_stream(
            SERVICE + "DoAction",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=Result.FromString,
        )(Action(type=kind), timeout=_CALL_TIMEOUT_SECONDS)
        return bytes(next(call).body)


def _serialized(message: Any) -> bytes:
    """Serialize a message as protobuf; pass bytes through, for tests that send garbage."""
    return message if isinstance(message, bytes) else bytes(message.SerializeToString())


def encapsulated(header: bytes, body: bytes) -> bytes:
    return b"\xff\xff\xff\xff" + len(header).to_bytes(4, "little") + header + body
