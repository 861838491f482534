# SPDX-License-Identifier: Apache-2.0
"""Raw Flight messages for tests, built with libraries instead of the code under test."""

from typing import Any

import grpc.aio
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from updraft.protocol import PROTOCOL_VERSION
from updraft.v1.exchange_pb2 import (
    ExchangeCommand,
    Finish,
    KeepAlive,
    Owner,
    RegisteredFunction,
    ReplyMetadata,
    RequestMetadata,
    TaskIdentity,
)

SCHEMA = pa.schema({"_0": pa.int64()})


def _flight_data_type() -> Any:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="flight_for_tests.proto", package="tests", syntax="proto3")
    descriptor = file.message_type.add(name="FlightDescriptor")
    descriptor.field.add(name="type", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    descriptor.field.add(name="cmd", number=2, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    descriptor.field.add(name="path", number=3, type=field.TYPE_STRING, label=field.LABEL_REPEATED)
    data = file.message_type.add(name="FlightData")
    data.field.add(
        name="flight_descriptor",
        number=1,
        type=field.TYPE_MESSAGE,
        type_name=".tests.FlightDescriptor",
        label=field.LABEL_OPTIONAL,
    )
    for name, number in (("data_header", 2), ("app_metadata", 3), ("data_body", 1000)):
        data.field.add(name=name, number=number, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.FlightData"))


FlightData = _flight_data_type()


def _encoded(**fields: Any) -> bytes:
    return bytes(FlightData(**fields).SerializeToString())


def path_request(*path: str) -> bytes:
    return _encoded(flight_descriptor={"type": 1, "path": path}, data_header=SCHEMA.serialize().to_pybytes())


def command_request(command: ExchangeCommand) -> bytes:
    return _encoded(
        flight_descriptor={"type": 2, "cmd": command.SerializeToString()},
        data_header=SCHEMA.serialize().to_pybytes(),
    )


def echo_command(**changes: Any) -> ExchangeCommand:
    values: dict[str, Any] = {
        "protocol_version": PROTOCOL_VERSION,
        "task": TaskIdentity(owner=Owner(application_id="app-1"), stage_id=2, partition_id=3, task_attempt_id=4),
        **({} if "session" in changes else {"registered": RegisteredFunction(name="echo")}),
        **changes,
    }
    return ExchangeCommand(**values)


def batch(sequence: int, body: bytes = b"body") -> bytes:
    metadata = RequestMetadata(sequence=sequence).SerializeToString()
    return _encoded(data_header=b"header", app_metadata=metadata, data_body=body)


def finish(batches: int, *, rows: int = 0) -> bytes:
    metadata = RequestMetadata(finish=Finish(batches=batches, rows=rows)).SerializeToString()
    return _encoded(app_metadata=metadata)


def keep_alive() -> bytes:
    return _encoded(app_metadata=RequestMetadata(keep_alive=KeepAlive()).SerializeToString())


def reply_metadata(message: bytes) -> ReplyMetadata:
    return ReplyMetadata.FromString(FlightData.FromString(message).app_metadata)


async def all_replies(call: Any) -> tuple[list[bytes], grpc.aio.AioRpcError | None]:
    """Return every message until the end of the call, and the error of a call that did not end with OK."""
    replies = []
    try:
        while (reply := await call.read()) is not grpc.aio.EOF:
            replies.append(reply)
    except grpc.aio.AioRpcError as error:
        return replies, error
    if await call.code() is not grpc.StatusCode.OK:
        return replies, grpc.aio.AioRpcError(
            await call.code(), None, await call.trailing_metadata(), await call.details()
        )
    return replies, None
