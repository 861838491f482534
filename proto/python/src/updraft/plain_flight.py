# SPDX-License-Identifier: Apache-2.0
"""Schema that describes a registered function to clients of plain Flight, and the schema of its replies.

This follows the conventions of arrow-udf, which RisingWave uses, and of Databend: the schema of a flight has the
arguments, followed by the results.
"""

import pyarrow as pa

from updraft.v1.control_pb2 import FunctionDescription, FunctionKind

INPUT_COUNT_KEY = b"x-databend-udf-input-count"
"""Key of the schema's metadata from which Databend's Python client reads the number of arguments."""

_ROW = pa.field("row", pa.int32(), nullable=False)


def flight_schema(description: FunctionDescription, *, numbered: bool) -> pa.Schema | None:
    """Return the schema of arguments and results, or None if these are unknown before a call.

    With `numbered`, each result of a table function begins with the number of the row that it belongs to.
    """
    if not description.argument_schema or not description.result_schema:
        return None
    arguments, results = map(_read, (description.argument_schema, description.result_schema))
    if description.kind == FunctionKind.FUNCTION_KIND_TABLE:
        results = table_schema(results, numbered=numbered)
    return pa.schema([*arguments, *results], metadata={INPUT_COUNT_KEY: str(len(arguments)).encode()})


def argument_count(schema: pa.Schema) -> int:
    """Return the number of arguments in a schema from `flight_schema`."""
    return int(schema.metadata[INPUT_COUNT_KEY])


def table_schema(results: pa.Schema, *, numbered: bool) -> pa.Schema:
    """Return the schema of replies with the results of a table function.

    If a client sends several rows, each result must say which row it belongs to. In arrow-udf, a reply therefore has
    two columns: the number of the row, and one value, which is a struct if there are several result columns. Databend
    sends one row and takes plain columns.
    """
    return pa.schema([_ROW, _value_field(results)]) if numbered else results


def _value_field(results: pa.Schema) -> pa.Field:
    if len(results) == 1:
        return results.field(0)
    # RisingWave requires the type of its own structs, whose fields are all nullable.
    return pa.field("result", pa.struct([_nullable(field) for field in results]), nullable=False)


def _nullable(field: pa.Field) -> pa.Field:
    return pa.field(field.name, field.type, metadata=field.metadata)


def _read(schema: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(schema))
