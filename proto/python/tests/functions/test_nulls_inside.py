# SPDX-License-Identifier: Apache-2.0
"""Nulls inside of lists, maps and structs, in the forms that have no null of every type."""

import dataclasses
import datetime
import math
from typing import Any

import pyarrow as pa
import pytest

from updraft.functions import NumPy, Pandas, function
from updraft.functions.hints import hinted
from updraft.testing import call


@dataclasses.dataclass
class Scores:
    best: int | None
    all: list[float | None]


@dataclasses.dataclass
class Corner:
    x: int


NULLS_INSIDE: dict[str, tuple[Any, list[Any]]] = {
    "floats": (list[float | None], [[1.5, None], [], [math.inf]]),
    "integers": (list[int | None], [[2**62 + 1, None], [3]]),
    "moments": (list[datetime.datetime | None], [[None, datetime.datetime(2026, 2, 28, tzinfo=datetime.UTC)]]),
    "lists": (list[list[float | None]], [[[None], [2.0, None]]]),
    "maps": (dict[str, int | None], [[("a", 2**62 + 1), ("b", None)]]),
    "structs": (Scores, [{"best": 2**62 + 1, "all": [None, 1.0]}, {"best": None, "all": []}]),
    "structs in lists": (list[Scores | None], [[None, {"best": 2**62 + 1, "all": [None]}]]),
}


@pytest.mark.parametrize("case", NULLS_INSIDE)
def test_nulls_inside_of_values_in_pandas_change_nothing(case: str) -> None:
    hint, values = NULLS_INSIDE[case]

    def same(x: Any) -> Any:
        return x

    # Type checkers reject a computed hint.
    form: Any = Pandas
    same.__annotations__ = dict.fromkeys(("x", "return"), form[hint])
    assert call(function(same), pa.array(values, hinted(hint, "x").type)).to_pylist() == values


def test_a_null_in_a_list_is_nan_for_numpy_as_a_float_alone_is() -> None:
    seen: list[list[float]] = []

    @function
    def same(x: NumPy[list[float | None]]) -> NumPy[list[float | None]]:
        seen.extend(each.tolist() for each in x)
        return x

    assert call(same, [[1.5, None]]).to_pylist() == [[1.5, None]]
    assert math.isnan(seen[0][1])


def test_members_below_a_null_struct_make_no_floats_of_others() -> None:
    corner = pa.StructArray.from_arrays([pa.array([2**62 + 1, None])], ["x"], mask=pa.array([False, True]))

    @function
    def read(corner: Pandas[Corner | None]) -> Pandas[str | None]:
        return corner.map(lambda each: each and str(each["x"]))

    assert call(read, corner).to_pylist() == [str(2**62 + 1), None]
