# SPDX-License-Identifier: Apache-2.0
"""Descriptions of the registered functions for callers."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from updraft.errors import keep_start
from updraft.functions import ErrorPolicy, Function, Kind, failures
from updraft.v1 import control_pb2
from updraft.v1.control_pb2 import FunctionDescription, FunctionKind
from updraft_server.ipc.function_list import MAX_DESCRIPTION_BYTES
from updraft_server.worker.registered.functions import RegisteredFunction, RegisteredFunctions

_MAX_TEXT_BYTES = 4096
_MAX_DEFAULT_BYTES = 256
_MAX_DEFAULT_ROW_BYTES = 4096
_KINDS = {
    Kind.ANY: FunctionKind.FUNCTION_KIND_UNSPECIFIED,
    Kind.SCALAR: FunctionKind.FUNCTION_KIND_SCALAR,
    Kind.TABLE: FunctionKind.FUNCTION_KIND_TABLE,
    Kind.AGGREGATE: FunctionKind.FUNCTION_KIND_AGGREGATE,
}
_POLICIES = {
    ErrorPolicy.RAISE: control_pb2.ERROR_POLICY_RAISE,
    ErrorPolicy.NULL: control_pb2.ERROR_POLICY_NULL,
    ErrorPolicy.STRUCT: control_pb2.ERROR_POLICY_STRUCT,
}


def descriptions(functions: RegisteredFunctions) -> Iterator[FunctionDescription]:
    """Yield a description of each function, and of each module that could not be imported. Modules have no version."""
    for function in functions:
        yield describe(function)
    for module in functions.module_faults:
        yield FunctionDescription(name=module.module, doc="A module of functions.", fault=module.fault)


def describe(registered: RegisteredFunction) -> FunctionDescription:
    """Describe a function for callers. Mark the function as faulty if it cannot be described."""
    function = registered.function
    try:
        description = _described(registered)
        size_bytes = description.ByteSize()
        if size_bytes <= MAX_DESCRIPTION_BYTES:
            return description
        registered.fault = f"its schemas and tags have {size_bytes} bytes, the limit is {MAX_DESCRIPTION_BYTES}"
    except Exception as error:  # the author's code formats the defaults
        registered.fault = f"it cannot be described: {failures.describe(error)}"
    return FunctionDescription(
        name=keep_start(function.name, _MAX_TEXT_BYTES),
        version=keep_start(function.version, _MAX_TEXT_BYTES),
        fault=registered.fault,
    )


def _described(registered: RegisteredFunction) -> FunctionDescription:
    function = registered.function
    return FunctionDescription(
        name=keep_start(function.name, _MAX_TEXT_BYTES),
        version=keep_start(function.version, _MAX_TEXT_BYTES),
        doc=keep_start(function.doc, _MAX_TEXT_BYTES),
        kind=_KINDS[function.kind],
        argument_schema=_encoded(function.argument_schema),
        result_schema=_encoded(function.result_schema),
        state_schema=_encoded(function.state_schema),
        arguments_with_default=len(function.defaults),
        deterministic=function.deterministic,
        tags=[keep_start(tag, _MAX_DEFAULT_BYTES) for tag in function.tags],
        owner=keep_start(function.owner, _MAX_DEFAULT_BYTES),
        error_policy=_POLICIES[function.on_error],
        fault=registered.fault,
        batched=function.batching is not None,
        defaults=[keep_start(repr(default), _MAX_DEFAULT_BYTES) for default in function.defaults],
        default_row=_default_row(function),
        by_row=function.is_called_by_row,
    )


def _default_row(function: Function[Any, Any]) -> bytes:
    row = function.arguments.default_row
    if not row.num_columns:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as stream:
        stream.write_batch(row)
    encoded = sink.getvalue()
    return bytes(encoded.to_pybytes()) if encoded.size <= _MAX_DEFAULT_ROW_BYTES else b""


def _encoded(schema: pa.Schema | None) -> bytes:
    return b"" if schema is None else bytes(schema.serialize().to_pybytes())
