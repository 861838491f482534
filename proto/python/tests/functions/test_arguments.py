# SPDX-License-Identifier: Apache-2.0
"""Arguments of a function: exactly its types, checked before any of its code runs."""

import dataclasses
from typing import Annotated, Any

import pyarrow as pa
import pytest

from updraft.errors import ProtocolError
from updraft.functions import Arrow, Function, function
from updraft.testing import call


@dataclasses.dataclass
class Item:
    price: float
    notes: list[str]


CALLED: list[str] = []


@function
def number(x: int) -> int:
    CALLED.append("number")
    return x


@function
def real(x: float) -> float:
    CALLED.append("real")
    return x


@function
def text(x: str | None) -> str | None:
    CALLED.append("text")
    return x


@function
def item(x: Item) -> float:
    CALLED.append("item")
    return x.price


@function
def mapping(x: dict[str, int]) -> int:
    CALLED.append("mapping")
    return len(x)


@function
def discount(price: float, percent: float = 10.0, note: str | None = None) -> str:
    CALLED.append("discount")
    return f"{price} {percent} {note}"


@function
def typed(x: Arrow[Annotated[list[int], pa.list_(pa.int16())]]) -> Arrow[str]:
    return pa.array([str(x.type)] * len(x))


@function
def pair(x: Annotated[list[float], pa.list_(pa.field("item", pa.float64(), nullable=False), 2)] | None) -> float | None:
    CALLED.append("pair")
    return None if x is None else sum(x)


@function
def optional(x: Item | None) -> float | None:
    return None if x is None else x.price


@function
def items(x: list[Item] | None) -> list[float] | None:
    return None if x is None else [each.price for each in x]


@function
def priced(x: dict[str, Item]) -> list[float]:
    return [each.price for each in x.values()]


ITEM = pa.struct({"price": pa.float64(), "notes": pa.list_(pa.string())})
REFUSED: dict[str, tuple[Function[..., Any], list[pa.Array], str]] = {
    "float_for_int": (number, [pa.array([1.0])], "argument 'x' of function 'number' is int64, not double"),
    "int32_for_int": (number, [pa.array([1], pa.int32())], "is int64, not int32"),
    "int_for_float": (real, [pa.array([1])], "is double, not int64"),
    "bytes_for_text": (text, [pa.array([b"a"])], "is string, not binary"),
    "other_struct": (item, [pa.array([{"price": 1.0}])], "is struct<"),
    "renamed_struct": (item, [pa.array([{"cost": 1.0, "notes": ["a"]}])], "is struct<"),
    "too_few": (discount, [], r"takes 1 to 3 columns \(price: double, percent: double = 10.0, note: string = None\)"),
    "too_many": (number, [pa.array([1]), pa.array([2])], r"takes 1 column \(x: int64\), not 2 \(int64, int64\)"),
    "null": (number, [pa.array([1, None])], "argument 'x' of function 'number' has a null"),
    "null_in_list": (item, [pa.array([{"price": 1.0, "notes": ["a", None]}], ITEM)], r"a null.*\(x.notes\[\]\)"),
    "null_in_struct": (item, [pa.array([{"price": None, "notes": []}], ITEM)], r"a null.*\(x.price\)"),
    "null_in_map": (mapping, [pa.array([[("a", None)]], pa.map_(pa.string(), pa.int64()))], r"a null.*\(x.value\)"),
    "null_in_pair": (pair, [pa.array([[1.0, None]], pa.list_(pa.float64(), 2))], r"a null.*\(x\[\]\)"),
    "other_size": (pair, [pa.array([[1.0]], pa.list_(pa.float64(), 1))], r"is fixed_size_list<.*\[2\], not .*\[1\]"),
    "list_view": (typed, [pa.array([[1]], pa.list_view(pa.int16()))], "is list<item: int16>"),
    "all_null": (text, [pa.nulls(2)], "is string, not null"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_function_does_not_take_is_an_error_before_its_code_runs(case: str) -> None:
    called, columns, reason = REFUSED[case]
    CALLED.clear()
    with pytest.raises(ProtocolError, match=reason):
        call(called, *columns)
    assert CALLED == []


HIDDEN = pa.StructArray.from_arrays(
    [pa.array([None, 1.5]), pa.array([None, ["a"]])], fields=list(ITEM), mask=pa.array([True, False])
)
"""A struct that is null as Spark writes it: its members are null too."""
SAME: dict[str, tuple[Function[..., Any], pa.Array, list[Any]]] = {
    "large_string": (text, pa.array(["a", None], pa.large_string()), ["a", None]),
    "string_view": (text, pa.array(["a", None], pa.string_view()), ["a", None]),
    "large_parts": (
        item,
        pa.array(
            [{"price": 1.5, "notes": ["a"]}], pa.struct({"price": pa.float64(), "notes": pa.large_list(pa.string())})
        ),
        [1.5],
    ),
    "nullable_map_without_nulls": (mapping, pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), [1]),
    "pair": (pair, pa.array([[1.0, 2.0], None], pa.list_(pa.field("x", pa.float64()), 2)), [3.0, None]),
    "null_struct_of_nulls": (optional, HIDDEN, [None, 1.5]),
    "list_after_nulls": (items, pa.ListArray.from_arrays([1, 2, 2], HIDDEN), [[1.5], []]),
    "null_list_around_nulls": (
        items,
        pa.ListArray.from_arrays([0, 1, 2], HIDDEN, mask=pa.array([True, False])),
        [None, [1.5]],
    ),
    "map_after_nulls": (priced, pa.MapArray.from_arrays([1, 2], ["a", "b"], HIDDEN), [[1.5]]),
    "null_struct_around_nothing": (text, pa.array([None, None], pa.string()), [None, None]),
    "large_list": (typed, pa.array([[1]], pa.large_list(pa.int16())), ["list<item: int16>"]),
}


@pytest.mark.parametrize("case", SAME)
def test_the_kinds_of_one_type_are_the_same(case: str) -> None:
    called, column, results = SAME[case]
    assert call(called, column).to_pylist() == results
    # A slice of a column has the buffers of the whole column.
    part = pa.record_batch([pa.concat_arrays([column, column])[1:]], ["x"])
    (checked,) = called.checked(part).columns
    assert (checked.type, checked.to_pylist()) == (called.arguments.schema.field(0).type, part.column(0).to_pylist())
    assert call(called, checked).to_pylist() == (results + results)[1:]


def test_columns_that_are_missing_have_their_defaults() -> None:
    assert call(discount, [1.0]).to_pylist() == ["1.0 10.0 None"]
    assert call(discount, [1.0], [2.0]).to_pylist() == ["1.0 2.0 None"]
    assert call(discount, [1.0], [2.0], ["x"]).to_pylist() == ["1.0 2.0 x"]


def test_the_defaults_are_a_row_of_the_types_of_their_arguments() -> None:
    row = discount.arguments.default_row
    assert row.schema == pa.schema(list(discount.arguments.schema)[1:])
    assert row.to_pylist() == [{"percent": 10.0, "note": None}]
    assert number.arguments.default_row.num_columns == 0


def test_nulls_are_found_in_each_batch() -> None:
    CALLED.clear()
    with pytest.raises(ProtocolError, match="has a null"):
        call(number, pa.array([1, 2, None]), batch_rows=2)
    assert CALLED == ["number", "number"]
