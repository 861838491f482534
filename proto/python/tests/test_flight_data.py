# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from updraft.errors import ProtocolError
from updraft.flight_data import (
    DescriptorKind,
    join_flight_data,
    parse_descriptor,
    split_body,
    split_flight_data,
)


def _message_type(name: str, *fields: tuple[str, int, int, int]) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package="tests", syntax="proto3")
    message = file.message_type.add(name=name)
    for field_name, number, kind, label in fields:
        message.field.add(name=field_name, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tests.{name}"))


_F = descriptor_pb2.FieldDescriptorProto
_ONE = _F.LABEL_OPTIONAL
FlightData = _message_type(
    "FlightData",
    ("flight_descriptor", 1, _F.TYPE_BYTES, _ONE),
    ("data_header", 2, _F.TYPE_BYTES, _ONE),
    ("app_metadata", 3, _F.TYPE_BYTES, _ONE),
    ("data_body", 1000, _F.TYPE_BYTES, _ONE),
)
Descriptor = _message_type(
    "Descriptor",
    ("type", 1, _F.TYPE_INT32, _ONE),
    ("cmd", 2, _F.TYPE_BYTES, _ONE),
    ("path", 3, _F.TYPE_STRING, _F.LABEL_REPEATED),
)


@given(st.binary(), st.binary(), st.binary(), st.binary(max_size=70_000))
def test_what_protobuf_writes_is_split_into_its_fields(
    descriptor: bytes, header: bytes, metadata: bytes, body: bytes
) -> None:
    message = FlightData(flight_descriptor=descriptor, data_header=header, app_metadata=metadata, data_body=body)
    assert tuple(map(bytes, split_flight_data(message.SerializeToString()))) == (descriptor, header, metadata, body)


@given(st.binary(), st.binary(), st.binary(max_size=70_000))
def test_what_is_joined_reads_as_protobuf(header: bytes, metadata: bytes, body: bytes) -> None:
    joined = join_flight_data(memoryview(header), memoryview(metadata), memoryview(body))
    assert FlightData.FromString(joined) == FlightData(data_header=header, app_metadata=metadata, data_body=body)


@given(st.binary(max_size=200))
@example(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
@example(b"\xff" * 11)
@example(b"\x08\x01")
@example(b"\x00\x00")
@example(b"\x13\x14")
@example(b"\x12\x80")
def test_any_bytes_are_fields_or_a_protocol_error(data: bytes) -> None:
    try:
        fields = split_flight_data(data)
    except ProtocolError:
        return
    assert sum(map(len, fields)) <= len(data)


@given(st.binary(max_size=100))
def test_bytes_that_are_accepted_are_read_as_protobuf_reads_them(data: bytes) -> None:
    try:
        fields = split_flight_data(data)
    except ProtocolError:
        return
    try:
        message = FlightData.FromString(data)
    except DecodeError:
        return
    expected = (message.flight_descriptor, message.data_header, message.app_metadata, message.data_body)
    assert tuple(map(bytes, fields)) == expected


def test_a_body_is_a_view_and_not_a_copy() -> None:
    message = FlightData(data_header=b"h", data_body=bytes(1000)).SerializeToString()
    assert split_flight_data(message).data_body.obj is message


def test_unknown_fields_are_skipped() -> None:
    unknown = b"\x20\x96\x01" + b"\x2d\x00\x00\x00\x00" + b"\x31" + bytes(8) + b"\x3a\x02hi"
    message = unknown + FlightData(data_header=b"h").SerializeToString() + unknown
    assert bytes(split_flight_data(message).data_header) == b"h"


@given(st.lists(st.text(max_size=20), max_size=4), st.binary())
def test_descriptors_are_parsed(path: list[str], command: bytes) -> None:
    parsed = parse_descriptor(memoryview(Descriptor(type=1, cmd=command, path=path).SerializeToString()))
    assert (parsed.kind, parsed.path, bytes(parsed.command)) == (DescriptorKind.PATH, tuple(path), command)


@pytest.mark.parametrize("data", [b"\x08\x09", b"\x0a\x01x", b"\x1a\x01\xff", b"\x10\x01", b"\x08"])
def test_a_bad_descriptor_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_descriptor(memoryview(data))


@pytest.mark.parametrize("field", [b"\x12\x00", b"\x1a\x00", b"\x20\x01"])
def test_fields_without_number_are_refused_before_they_are_read(field: bytes) -> None:
    """Reading them takes a microsecond each, which would block all other calls."""
    for read in (split_flight_data, lambda data: parse_descriptor(memoryview(data))):
        with pytest.raises(ProtocolError, match="more than 64 fields"):
            read(field * 65)


@given(st.binary(), st.binary(), st.binary(max_size=300))
def test_a_message_is_split_before_its_body(header: bytes, metadata: bytes, body: bytes) -> None:
    message = join_flight_data(memoryview(header), metadata, memoryview(body))
    rest, body_bytes = split_body(message)
    assert body_bytes == len(body)
    assert split_flight_data(bytes(rest)).data_header == header
    assert split_flight_data(bytes(rest)).app_metadata == metadata
    assert message[len(message) - body_bytes :] == body


@given(st.binary())
def test_any_bytes_can_be_split_before_a_body(message: bytes) -> None:
    rest, body_bytes = split_body(message)
    assert message.startswith(bytes(rest))
    assert len(rest) + body_bytes <= len(message)


def test_a_body_that_is_not_last_stays_in_its_message() -> None:
    body = FlightData(data_body=b"body").SerializeToString()
    metadata = FlightData(app_metadata=b"metadata").SerializeToString()
    assert split_body(body + metadata) == (body + metadata, 0)
