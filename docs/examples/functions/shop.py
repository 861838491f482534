# SPDX-License-Identifier: Apache-2.0
"""Functions of a shop, as docs/guides/registered-functions.md deploys them."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow.compute as pc

from updraft import function
from updraft.functions import Arrow


@function(version="1", owner="pricing", tags=["money"])
def discount(price: float, percent: float = 10.0) -> float:
    """The price with so many percent off."""
    return price * (100 - percent) / 100


@function(name="text.slug")
def slug(title: Arrow[str | None]) -> Arrow[str | None]:
    """A title as it stands in an address."""
    return pc.replace_substring_regex(pc.utf8_lower(title), "[^a-z0-9]+", "-")


class Word(NamedTuple):
    """A row of `words`."""

    word: str
    length: int


@function.table
def words(text: str) -> Iterator[Word]:
    """The words of a text."""
    for word in text.split():
        yield Word(word, len(word))


class Sums(NamedTuple):
    """What `mean` knows of a part of a group."""

    total: float
    rows: int


@function.aggregate(name="mean")
class Mean:
    """The mean of the values."""

    def start(self) -> Sums:
        """Of no values."""
        return Sums(0.0, 0)

    def accumulate(self, state: Sums, value: Arrow[float]) -> Sums:
        """With values of one group, as many as came together."""
        return Sums(state.total + (pc.sum(value).as_py() or 0.0), state.rows + len(value))

    def merge(self, left: Sums, right: Sums) -> Sums:
        """Of two parts of a group."""
        return Sums(left.total + right.total, left.rows + right.rows)

    def finish(self, state: Sums) -> float | None:
        """The result."""
        return state.total / state.rows if state.rows else None
