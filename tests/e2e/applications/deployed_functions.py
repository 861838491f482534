# SPDX-License-Identifier: Apache-2.0
"""Functions that are deployed with a pool, for tests that call them by name."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from updraft import function
from updraft.functions import Arrow, Pandas


@function(version="1", owner="pricing", tags=["money"])
def discount(price: float, percent: float = 10.0) -> float:
    """The price with so many percent off."""
    return price * (100 - percent) / 100


@function(version="2", name="discount")
def half_price(price: float, percent: float = 50.0) -> float:
    """The price with so many percent off, which are more by now."""
    return price * (100 - percent) / 100


@function(name="text.upper")
def upper(text: Arrow[str | None]) -> Arrow[str | None]:
    return pc.utf8_upper(text)


@function
def add(left: int, right: int) -> int:
    return left + right


@function
def twice(value: Pandas[float]) -> Pandas[float]:
    return value * 2


@function(deterministic=False)
def anything() -> float:
    return 4.0


@function
def following(day: datetime.date, at: datetime.datetime, share: Annotated[Decimal, pa.decimal128(10, 2)]) -> str:
    return f"{day + datetime.timedelta(days=1)} {at.isoformat()} {share}"


@function
def reciprocal(value: int) -> float:
    return 1 / value


@function(on_error="null")
def safe_reciprocal(value: int) -> float | None:
    return 1 / value


@function
def total(values: list[int]) -> int:
    return sum(values)


class Word(NamedTuple):
    word: str
    length: int


@function.table
def words(text: str, least: int = 1) -> Iterator[Word]:
    """The words of a text, of at least so many letters."""
    for word in text.split():
        if len(word) >= least:
            yield Word(word, len(word))


class Sums(NamedTuple):
    total: float
    rows: int


@function.aggregate(name="mean")
class Mean:
    """The mean of the values."""

    def start(self) -> Sums:
        return Sums(0.0, 0)

    def accumulate(self, state: Sums, value: Arrow[float]) -> Sums:
        return Sums(state.total + (pc.sum(value).as_py() or 0.0), state.rows + len(value))

    def merge(self, left: Sums, right: Sums) -> Sums:
        return Sums(left.total + right.total, left.rows + right.rows)

    def finish(self, state: Sums) -> float | None:
        return state.total / state.rows if state.rows else None
