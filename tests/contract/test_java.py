# SPDX-License-Identifier: Apache-2.0
"""Java on the wire: the connector's messages read what Python writes, and Arrow's own Java client can call a pool."""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tests.contract.conftest import MAVEN_TIMEOUT_SECONDS
from tests.support.java import run_java
from tests.support.paths import connector_jar
from tests.support.pool import LocalPool
from updraft.v1 import control_pb2, exchange_pb2

_SOURCES = Path(__file__).parent / "java"

_EDGES: dict[int, list[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: [0, 1, -1, 2**31 - 1, -(2**31)],
    FieldDescriptor.CPPTYPE_INT64: [0, 1, -1, 2**63 - 1, -(2**63)],
    FieldDescriptor.CPPTYPE_UINT32: [0, 1, 2**31 - 1],
    FieldDescriptor.CPPTYPE_UINT64: [0, 1, 2**63 - 1],
    FieldDescriptor.CPPTYPE_BOOL: [False, True],
}
# Java's lite messages print an enum both by name and by number.
_ENUM_NUMBER = re.compile(r"^ *\w+_value: -?\d+$", re.MULTILINE)
_TEXTS = ["", "plain", "žluťoučký 🐎", 'quotes " and \\ and \n']
_BYTES = [b"", b"bytes", bytes(range(256))]


def _edges(field: FieldDescriptor) -> list[Any]:
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        assert field.enum_type is not None
        return [value.number for value in field.enum_type.values]
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _BYTES
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return _TEXTS
    return _EDGES[field.cpp_type]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _fill(message: Message, variant: int) -> None:
    """Set every field that a message can have at once; `variant` chooses among values and members of a oneof."""
    chosen = {oneof.name: oneof.fields[variant % len(oneof.fields)].name for oneof in message.DESCRIPTOR.oneofs}
    fields: Sequence[Any] = message.DESCRIPTOR.fields
    for field in fields:
        oneof = field.containing_oneof
        if oneof is not None and chosen[oneof.name] != field.name:
            continue
        _set(message, field, variant)


def _set(message: Message, field: FieldDescriptor, variant: int) -> None:
    if _is_map(field):
        assert field.message_type is not None
        value = field.message_type.fields_by_name["value"]
        for number in range(2):
            if value.message_type is None:
                getattr(message, field.name)[f"key {number}"] = f"value {variant}"
            else:
                _fill(getattr(message, field.name)[f"key {number}"], variant)
    elif field.is_repeated and field.message_type is not None:
        for number in range(2):
            _fill(getattr(message, field.name).add(), variant + number)
    elif field.is_repeated:
        getattr(message, field.name).extend(_edges(field))
    elif field.message_type is not None:
        getattr(message, field.name).SetInParent()
        _fill(getattr(message, field.name), variant)
    else:
        values = _edges(field)
        setattr(message, field.name, values[variant % len(values)])


def _descriptors() -> Iterator[Descriptor]:
    for module in (exchange_pb2, control_pb2):
        yield from module.DESCRIPTOR.message_types_by_name.values()


def _vectors() -> list[Message]:
    messages = []
    for descriptor in _descriptors():
        for variant in range(14):
            message = getattr(exchange_pb2, descriptor.name, None) or getattr(control_pb2, descriptor.name)
            messages.append(message())
            _fill(messages[-1], variant)
    return messages


@functools.cache
def _read_by_java() -> list[tuple[Message, bytes, str]]:
    """Return each vector with the bytes that Java wrote and the text that it printed."""
    vectors = _vectors()
    lines = [f"{m.DESCRIPTOR.name} {base64.b64encode(m.SerializeToString()).decode()}" for m in vectors]
    answer = run_java(str(connector_jar()), _SOURCES / "ReadVectors.java", text="\n".join(lines) + "\n")
    pairs = [line.split(" ") for line in answer.splitlines()]
    assert len(pairs) == len(vectors)
    return [
        (message, base64.b64decode(written), base64.b64decode(printed).decode())
        for message, (written, printed) in zip(vectors, pairs, strict=True)
    ]


@pytest.mark.parametrize("name", [descriptor.name for descriptor in _descriptors()])
def test_java_reads_every_field_that_python_wrote_and_python_what_java_wrote(name: str) -> None:
    seen = 0
    for message, written, printed in _read_by_java():
        if message.DESCRIPTOR.name != name:
            continue
        assert type(message).FromString(written) == message
        # Java would print an unknown field by its number, which Python's parser refuses.
        assert text_format.Parse(_ENUM_NUMBER.sub("", printed), type(message)()) == message, printed
        seen += 1
    assert seen


@pytest.mark.timeout(MAVEN_TIMEOUT_SECONDS)
def test_arrows_java_client_calls_echo(flight_class_path: str, pool: LocalPool) -> None:
    answer = run_java(flight_class_path, _SOURCES / "EchoClient.java", f"grpc://{pool.tcp_address}", "echo")
    rows = [line for line in answer.splitlines() if line != "n\tt"]
    assert rows == [f"{number}\t{'null' if number % 5 == 2 else f'row {number % 5}'}" for number in range(15)]


def test_arrows_java_client_hears_of_an_unknown_function(flight_class_path: str, pool: LocalPool) -> None:
    answer = run_java(flight_class_path, _SOURCES / "EchoClient.java", f"grpc://{pool.tcp_address}", "no_such_function")
    assert answer.startswith("NOT_FOUND")
    assert "no_such_function" in answer
