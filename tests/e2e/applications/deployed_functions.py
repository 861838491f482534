# SPDX-License-Identifier: Apache-2.0
"""Functions that are deployed with a pool, beside those of docs/examples/functions/shop.py."""

import datetime
import time
import uuid
from decimal import Decimal
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc

from updraft import function
from updraft.functions import Arrow, Pandas


@function(version="1", owner="pricing", tags=["money"])
def rebate(price: float, percent: float = 10.0) -> float:
    """The price with so many percent off."""
    return price * (100 - percent) / 100


@function(version="2", name="rebate")
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
def stamp(text: Arrow[str]) -> Arrow[str]:
    """Another text for each row of each call, whatever it is declared to be: so the calls can be told apart."""
    return pa.array([f"{value} {uuid.uuid4()}" for value in text.to_pylist()], pa.string())


@function
def naps(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@function(name="new_stamp", deterministic=False)
def new_stamp(text: str) -> str:
    return f"{text} {uuid.uuid4()}"


@function.aggregate(name="entries")
class Entries:
    """The number of rows, which is never null; the argument must not be either."""

    def start(self) -> int:
        return 0

    def accumulate(self, state: int, value: Arrow[int]) -> int:
        return state + len(value)

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> int:
        return state


@function
def total(values: list[int]) -> int:
    return sum(values)
