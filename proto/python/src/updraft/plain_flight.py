# SPDX-License-Identifier: Apache-2.0
"""What clients of plain Flight are told of a registered function, and what its results look like to them.

The conventions are those of arrow-udf, by which RisingWave calls, and of Databend, wherever these say something: the
schema of a flight is that of the arguments and then the results.
"""

import pyarrow as pa

from updraft.v1.control_pb2 import FunctionDescription, FunctionKind

INPUT_COUNT_KEY = b"x-databend-udf-input-count"
"""Key of the schema's metadata by which Databend's Python client finds the number of arguments."""

_ROW = pa.field("row", pa.int32(), nullable=False)


def flight_schema(description: FunctionDescription, *, numbered: bool) -> pa.Schema | None:
    """The schema of arguments and results, or None where only a call shows them.

    `numbered` says whether results of a table function begin with the number of their row.
    """
    if not description.argument_schema or not description.result_schema:
        return None
    arguments, results = map(_read, (description.argument_schema, description.result_schema))
    if description.kind == FunctionKind.FUNCTION_KIND_TABLE:
        results = table_schema(results, numbered=numbered)
    return pa.schema([*arguments, *results], metadata={INPUT_COUNT_KEY: str(len(arguments)).encode()})


def argument_count(schema: pa.Schema) -> int:
    """The number of arguments in a schema of `flight_schema`."""
    return int(schema.metadata[INPUT_COUNT_KEY])


def table_schema(results: pa.Schema, *, numbered: bool) -> pa.Schema:
    """The schema of replies with the results of a table function.

    Where a client sends several rows, a result has to say which one it belongs to: arrow-udf sends the number of the
    row and one value, a struct where there are several columns. Databend asks for one row, and takes the columns.
    """
    return pa.schema([_ROW, _value_field(results)]) if numbered else results


def _value_field(results: pa.Schema) -> pa.Field:
    if len(results) == 1:
        return results.field(0)
    # RisingWave's own structs have nothing but nullable fields, and it asks for the same type.
    return pa.field("result", pa.struct([_nullable(field) for field in results]), nullable=False)


def _nullable(field: pa.Field) -> pa.Field:
    return pa.field(field.name, field.type, metadata=field.metadata)


def _read(schema: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(schema))
