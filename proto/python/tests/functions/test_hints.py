# SPDX-License-Identifier: Apache-2.0
"""Arrow types of type hints, and values of each type as arguments and results."""

import dataclasses
import datetime
import decimal
import math
from typing import Annotated, Any, NamedTuple, TypedDict

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from updraft.functions import DeclarationError, Function, function
from updraft.functions.hints import hinted
from updraft.testing import call


@dataclasses.dataclass(frozen=True)
class Money:
    amount: decimal.Decimal
    currency: str | None


class Point(NamedTuple):
    x: float
    y: float


class Line(TypedDict):
    start: Point
    ends: list[Point | None]


MONEY = pa.struct(
    [pa.field("amount", pa.decimal128(38, 18), nullable=False), pa.field("currency", pa.string(), nullable=True)]
)
POINT = pa.struct([pa.field("x", pa.float64(), nullable=False), pa.field("y", pa.float64(), nullable=False)])
TYPES: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    bool: pa.bool_(),
    datetime.date: pa.date32(),
    datetime.datetime: pa.timestamp("us", "UTC"),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
    decimal.Decimal: pa.decimal128(38, 18),
    list[int]: pa.list_(pa.field("item", pa.int64(), nullable=False)),
    list[str | None]: pa.list_(pa.field("item", pa.string())),
    dict[str, float]: pa.map_(pa.string(), pa.field("value", pa.float64(), nullable=False)),
    Money: MONEY,
    Point: POINT,
    Annotated[int, pa.int32()]: pa.int32(),
    Annotated[int, "any note"]: pa.int64(),
    Annotated[Any, pa.uint8()]: pa.uint8(),
}


@pytest.mark.parametrize("hint", TYPES, ids=str)
def test_a_hint_has_one_arrow_type_and_allows_no_null(hint: Any) -> None:
    value = hinted(hint, "it")
    assert (value.type, value.nullable) == (TYPES[hint], False)
    assert value.type.equals(TYPES[hint], check_metadata=True)


@pytest.mark.parametrize("hint", TYPES, ids=str)
def test_a_hint_that_may_be_none_has_the_same_type_and_allows_nulls(hint: Any) -> None:
    value = hinted(hint | None, "it")
    assert (value.type, value.nullable) == (TYPES[hint], True)


WRONG: dict[str, Any] = {
    "set": set[int],
    "none": None,
    "union": int | str,
    "any": Any,
    "object": object,
    "text": "unresolved",
    "bare_list": list,
    "key_that_may_be_none": dict[str | None, int],
}


@pytest.mark.parametrize("hint", WRONG)
def test_a_hint_without_an_arrow_type_is_refused_by_name(hint: str) -> None:
    with pytest.raises(DeclarationError, match="the argument 'x'"):
        hinted(WRONG[hint], "the argument 'x'")


@function
def same_number(value: int | None) -> int | None:
    return value


@function
def same_day(value: datetime.date) -> datetime.date:
    return value


@function
def same_moment(value: datetime.datetime) -> datetime.datetime:
    return value


@function
def same_span(value: datetime.timedelta) -> datetime.timedelta:
    return value


@function
def same_single(value: Annotated[float, pa.float32()]) -> Annotated[float, pa.float32()]:
    return value


@function
def same_singles(value: list[Annotated[float, pa.float32()]]) -> list[Annotated[float, pa.float32()]]:
    singles: list[Any] = [np.float32(number) for number in value]
    return singles


@function
def same_second(
    value: Annotated[datetime.datetime, pa.timestamp("s")] | None,
) -> Annotated[datetime.datetime, pa.timestamp("s")] | None:
    return value


@function
def same_clock(value: Annotated[datetime.time, pa.time32("ms")]) -> Annotated[datetime.time, pa.time32("ms")]:
    return value


@function
def same_seconds(
    value: Annotated[datetime.timedelta, pa.duration("s")],
) -> Annotated[datetime.timedelta, pa.duration("s")]:
    return value


@function
def same_list(value: list[str | None] | None) -> list[str | None] | None:
    return value


@function
def same_mapping(value: dict[str, float]) -> dict[str, float]:
    assert isinstance(value, dict)
    return value


@function
def same_money(value: Money | None) -> Money | None:
    assert value is None or isinstance(value, Money)
    return value


@function
def same_line(value: Line) -> Line:
    assert isinstance(value["start"], Point)
    return value


VALUES: list[tuple[Function[..., Any], list[Any]]] = [
    (same_number, [1, None, -(2**63), 2**63 - 1]),
    (same_day, [datetime.date(2026, 2, 28)]),
    (same_moment, [datetime.datetime(2026, 2, 28, 1, 2, 3, 4, datetime.UTC)]),
    (same_span, [datetime.timedelta(days=-1, microseconds=5)]),
    (same_single, [3.4028234663852886e38, math.inf, -math.inf, 0.5]),
    (same_singles, [[3.4028234663852886e38, math.inf], [], [-math.inf]]),
    (same_second, [datetime.datetime(2026, 2, 28, 1, 2, 3), None]),
    (same_clock, [datetime.time(1, 2, 3, 4000)]),
    (same_seconds, [datetime.timedelta(days=-1, seconds=5)]),
    (same_list, [["a", None], [], None]),
    (same_mapping, [{"a": 1.5}, {}]),
    (same_money, [Money(decimal.Decimal("1.50"), "EUR"), Money(decimal.Decimal("0"), None), None]),
    (same_line, [{"start": Point(1.0, 2.0), "ends": [Point(3.0, 4.0), None]}]),
]


@pytest.mark.parametrize(("same", "values"), VALUES, ids=[same.name for same, _ in VALUES])
def test_values_come_and_go_as_their_author_writes_them(same: Function[..., Any], values: list[Any]) -> None:
    arrived = call(same, values)
    assert call(same, arrived).equals(arrived)
    from_arrow = hinted(same.__annotations__["value"], "it").from_arrow
    listed = arrived.to_pylist()
    assert [value if from_arrow is None else from_arrow(value) for value in listed] == values


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (int, 1.0),
        (int, True),
        (int, "1"),
        (int, 2**63),
        (float, "1.5"),
        (float, True),
        (str, 1),
        (str, b"bytes"),
        (bytes, "text"),
        (bool, 1),
        (datetime.date, datetime.datetime(2026, 1, 1)),
        (datetime.datetime, datetime.datetime(2026, 1, 1)),
        (datetime.datetime, datetime.date(2026, 1, 1)),
        (Annotated[datetime.datetime, pa.timestamp("us")], datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)),
        (datetime.time, datetime.datetime(2026, 1, 1)),
        (datetime.timedelta, 5),
        (datetime.time, datetime.time(1, tzinfo=datetime.UTC)),
        (Annotated[datetime.datetime, pa.timestamp("s")], datetime.datetime(2026, 1, 1, microsecond=500_000)),
        (Annotated[datetime.datetime, pa.timestamp("ms")], datetime.datetime(2026, 1, 1, microsecond=1500)),
        (Annotated[datetime.datetime, pa.timestamp("us")], pd.Timestamp("2026-01-01T00:00:00.000000001")),
        (Annotated[datetime.time, pa.time32("s")], datetime.time(1, 2, 3, 1000)),
        (Annotated[datetime.time, pa.time32("ms")], datetime.time(1, 2, 3, 1001)),
        (Annotated[datetime.timedelta, pa.duration("s")], datetime.timedelta(milliseconds=1)),
        (Annotated[datetime.timedelta, pa.duration("ms")], datetime.timedelta(microseconds=-1)),
        (datetime.timedelta, pd.Timedelta(1, "ns")),
        (Annotated[float, pa.float32()], 1e300),
        (Annotated[float, pa.float32()], -3.5e38),
        (Annotated[float, pa.float16()], 65520.0),
        (Annotated[int, pa.float16()], 70_000),
        (Annotated[int, pa.float16()], 2049),
        (Annotated[int, pa.float16()], np.int64(-2049)),
        (Annotated[int, pa.float16()], 65_519),
        (Annotated[int, pa.float16()], 2**64),
        (list[Annotated[float, pa.float16()] | None], [1.5, None, 2049]),
        (Annotated[int, pa.float32()], 2**24 + 1),
        (list[Annotated[float, pa.float32()]], [1.0, 1e300]),
        (list[Annotated[float, pa.float32()]], [math.inf, 1e300]),
        (list[Annotated[float, pa.float16()]], [np.float16(1.0), 70_000.0]),
        (Annotated[float, pa.float32()], np.float64(1e300)),
        (dict[str, list[Annotated[float, pa.float32()]]], {"a": [], "b": [1e300]}),
        (dict[str, Annotated[float, pa.float32()] | None], {"a": None, "b": 1e300}),
        (Annotated[Any, pa.list_(pa.float32(), 2)], [1.0, 1e300]),
        (Annotated[Any, pa.struct({"a": pa.string(), "b": pa.list_(pa.float32())})], {"a": "", "b": [1e300]}),
        (list[Annotated[datetime.timedelta, pa.duration("s")]], [datetime.timedelta(milliseconds=1)]),
        (list[int], [1, 2.5]),
        (dict[str, int], {1: 1}),
        (Point, Point(1.0, "2")),  # type: ignore[arg-type]  # that is the error
        (Money, (1, 2)),
        (int, None),
        (list[int], [None]),
    ],
    ids=str,
)
def test_a_result_that_is_not_what_the_hint_says_is_an_error_and_never_rounded(result: Any, value: Any) -> None:
    from updraft.errors import UserError

    def give(_: int) -> Any:
        return value

    give.__annotations__["return"] = result
    with pytest.raises(UserError, match=r"function 'give' returned"):
        call(function(give), [1])


MOMENT = datetime.datetime(2026, 1, 1, microsecond=1500, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("kind", "value", "finer"),
    [
        (pa.timestamp("ms", "UTC"), MOMENT, pa.timestamp("us", "UTC")),
        (pa.timestamp("s", "UTC"), MOMENT.replace(microsecond=500_000), pa.timestamp("ms", "UTC")),
        (pa.timestamp("s"), MOMENT.replace(tzinfo=None), pa.timestamp("us")),
        (pa.timestamp("us"), pd.Timestamp("2026-01-01T00:00:00.000000001"), pa.timestamp("ns")),
        (pa.timestamp("us", "UTC"), pd.Timestamp("2026-01-01T00:00:00.000000001", tz="UTC"), pa.timestamp("ns", "UTC")),
        (pa.time32("s"), datetime.time(1, 2, 3, 1000), pa.time32("ms")),
        (pa.time32("ms"), datetime.time(1, 2, 3, 1001), pa.time64("us")),
        (pa.duration("ms"), datetime.timedelta(microseconds=1), pa.duration("us")),
        (pa.duration("us"), pd.Timedelta(1, "ns"), pa.duration("ns")),
    ],
    ids=str,
)
def test_a_time_with_too_many_digits_names_a_type_that_takes_it(
    kind: pa.DataType, value: Any, finer: pa.DataType
) -> None:
    from updraft.errors import UserError

    def give(_: int) -> Any:
        return value

    give.__annotations__["return"] = Annotated[Any, kind]
    with pytest.raises(UserError, match="round it, or declare a finer unit") as raised:
        call(function(give), [1])
    declared = str(raised.value).rpartition("finer unit: ")[2].partition(" (value ")[0]
    assert eval(declared, {"pa": pa}) == finer
    give.__annotations__["return"] = Annotated[Any, finer]
    assert call(function(give), [1]).to_pylist() == [value]


def test_nanoseconds_in_a_plain_datetime_name_the_type_to_declare() -> None:
    from updraft.errors import UserError

    @function
    def stamped(_: int) -> datetime.datetime:
        moment: datetime.datetime = pd.Timestamp("2026-01-01T00:00:00.000000001", tz="UTC")
        return moment

    with pytest.raises(UserError, match=r'round it, or declare a finer unit: pa\.timestamp\("ns", "UTC"\)'):
        call(stamped, [1])
