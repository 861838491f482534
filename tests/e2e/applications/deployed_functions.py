# SPDX-License-Identifier: Apache-2.0
"""Functions that are deployed with a pool, beside those of docs/examples/functions/shop.py."""

import asyncio
import datetime
import sys
import time
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from updraft import function
from updraft.functions import Arrow, Pandas

WEIGHTS = "deployed_weights"
"""A file in one of the directories of PYTHONPATH."""


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


class Step(NamedTuple):
    number: int


class Corner(NamedTuple):
    x: int
    y: float


@function
def corner_sum(corner: Corner | None) -> float | None:
    return None if corner is None else corner.x + corner.y


DAY = datetime.date(2026, 2, 28)
NOON = datetime.datetime(2026, 2, 28, 12, tzinfo=datetime.UTC)
TAGS = ["a", "b"]
CORNER = Corner(1, 2.5)


@function
def defaults(
    number: int,
    text: str = "x",
    day: datetime.date = DAY,
    at: datetime.datetime = NOON,
    share: Annotated[Decimal, pa.decimal128(10, 2)] = Decimal("1.50"),
    corner: Corner = CORNER,
    tags: list[str] = TAGS,
    note: str | None = None,
    raw: bytes = b"\0\1",
    last: int = 9,
) -> str:
    """Return the arguments as Python writes them."""
    return repr((number, text, day, at.isoformat(), share, corner, tags, note, raw, last))


@function
def vast(number: int, text: str = "x" * 5000, last: int = 1) -> int:
    """With a default that no description holds."""
    return number + len(text) + last


@function
def as_int16(value: Annotated[int, pa.int16()]) -> int:
    return value


@function
def as_decimal(value: Annotated[Decimal, pa.decimal128(10, 2)]) -> str:
    return str(value)


@function.table
def stepped(first: int, count: int = 2, step: int = 10) -> Iterator[Step]:
    """So many numbers with the same distance."""
    for number in range(count):
        yield Step(first + number * step)


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


@function(on_error="struct")
def explained_reciprocal(value: int) -> float:
    return 1 / value


@function(deterministic=False)
def running_total(values: Iterator[Arrow[int]]) -> Iterator[Arrow[int]]:
    """The sum of all values so far, over all batches of a task."""
    total = 0
    for value in values:
        sums = pc.add(pc.cumulative_sum(value), total)
        total = sums[-1].as_py()
        yield sums


@function
async def awaited(value: int) -> int:
    """Ends in another order than it begins."""
    await asyncio.sleep(0.001 * (5 - value % 5))
    return value * 3


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


@function.aggregate(name="scaled_sum")
class ScaledSum:
    """A sum with a factor and an offset for each row."""

    def start(self) -> int:
        return 0

    def accumulate(self, state: int, value: int, factor: int = 1, offset: int = 0) -> int:
        return state + value * factor + offset

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> int:
        return state


@function(name="unloadable", load="zygote")
class Unloadable:
    """Cannot be loaded, whatever it is called with."""

    def __init__(self) -> None:
        raise OSError("its weights are missing")

    def __call__(self, value: int) -> int:
        return value


@function.table(name="unloadable_steps", load="zygote")
class UnloadableSteps:
    """Cannot be loaded either."""

    def __init__(self) -> None:
        raise OSError("its weights are missing")

    def __call__(self, value: int) -> Iterator[Step]:
        yield Step(value)


class Weighted:
    """Function that cannot be loaded before its file exists."""

    def __init__(self) -> None:
        found = [file for place in sys.path if (file := Path(place, WEIGHTS)).exists()]
        if not found:
            raise FileNotFoundError("there are no weights yet")
        self.weight = int(found[0].read_text())


@function(name="weighted")
class WeightedValue(Weighted):
    def __call__(self, value: int) -> int:
        return value * self.weight


@function.aggregate(name="weighted_sum")
class WeightedSum(Weighted):
    def start(self) -> int:
        return 0

    def accumulate(self, state: int, value: int) -> int:
        return state + value * self.weight

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> int:
        return state


@function.table(name="weighted_steps")
class WeightedSteps(Weighted):
    def __call__(self, value: int) -> Iterator[Step]:
        yield Step(value * self.weight)


@function
def total(values: list[int]) -> int:
    return sum(values)
