# SPDX-License-Identifier: Apache-2.0
"""Description of a function's arguments and results for clients of plain Flight."""

import pyarrow as pa
import pytest

from updraft.plain_flight import argument_count, flight_schema, table_schema
from updraft.v1.control_pb2 import FunctionDescription, FunctionKind

TEXT = pa.schema([pa.field("text", pa.string())])
WORD = pa.schema([pa.field("word", pa.string(), nullable=False)])
WORDS = pa.schema([*WORD, pa.field("count", pa.int64(), nullable=False)])


def described(kind: FunctionKind, arguments: pa.Schema | None, results: pa.Schema | None) -> FunctionDescription:
    encoded = [b"" if schema is None else schema.serialize().to_pybytes() for schema in (arguments, results)]
    return FunctionDescription(name="f", kind=kind, argument_schema=encoded[0], result_schema=encoded[1])


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("kind", [FunctionKind.FUNCTION_KIND_SCALAR, FunctionKind.FUNCTION_KIND_AGGREGATE])
def test_the_results_come_behind_the_arguments(kind: FunctionKind, *, numbered: bool) -> None:
    schema = flight_schema(described(kind, TEXT, WORD), numbered=numbered)
    assert schema is not None
    assert list(schema) == [*TEXT, *WORD]
    assert argument_count(schema) == 1


def test_a_function_without_arguments_has_none() -> None:
    schema = flight_schema(described(FunctionKind.FUNCTION_KIND_SCALAR, pa.schema([]), WORD), numbered=True)
    assert schema is not None
    assert (list(schema), argument_count(schema)) == (list(WORD), 0)


@pytest.mark.parametrize("schemas", [(None, WORD), (TEXT, None), (None, None)])
def test_what_only_a_call_shows_is_not_made_up(schemas: tuple[pa.Schema | None, pa.Schema | None]) -> None:
    assert flight_schema(described(FunctionKind.FUNCTION_KIND_UNSPECIFIED, *schemas), numbered=True) is None


def test_the_results_of_a_table_function_begin_with_the_row_unless_there_is_one() -> None:
    description = described(FunctionKind.FUNCTION_KIND_TABLE, TEXT, WORDS)
    numbered, alone = (flight_schema(description, numbered=numbered) for numbered in (True, False))
    assert numbered is not None
    assert alone is not None
    assert [field.name for field in numbered] == ["text", "row", "result"]
    assert [field.name for field in alone] == ["text", "word", "count"]
    assert argument_count(numbered) == argument_count(alone) == 1


def test_a_result_of_one_column_is_the_value_itself() -> None:
    assert list(table_schema(WORD, numbered=True)) == [pa.field("row", pa.int32(), nullable=False), *WORD]


def test_a_result_of_several_columns_is_a_struct_as_risingwave_declares_it() -> None:
    value = table_schema(WORDS, numbered=True).field(1)
    assert value.type == pa.struct([pa.field("word", pa.string()), pa.field("count", pa.int64())])
