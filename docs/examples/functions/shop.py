# SPDX-License-Identifier: Apache-2.0
"""Functions of a shop, as docs/guides/registered-functions.md deploys them."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow.compute as pc

from updraft import function
from updraft.functions import Arrow


@function(version="1", owner="pricing", tags=["money"])
def discount(price: float, percent: float = 10.0) -> float:
    """Return the price with so many percent off."""
    return price * (100 - percent) / 100


@function(name="text.slug")
def slug(title: Arrow[str | None]) -> Arrow[str | None]:
    """Return a title as it stands in an address."""
    return pc.replace_substring_regex(pc.utf8_lower(title), "[^a-z0-9]+", "-")


class Word(NamedTuple):
    """Row of `words`."""

    word: str
    length: int


@function.table
def words(text: str) -> Iterator[Word]:
    """Return the words of a text."""
    for word in text.split():
        yield Word(word, len(word))


class Sums(NamedTuple):
    """State of `mean` for a part of a group."""

    total: float
    rows: int


@function.aggregate(name="mean")
class Mean:
    """Mean of the values."""

    def start(self) -> Sums:
        """Start without values."""
        return Sums(0.0, 0)

    def accumulate(self, state: Sums, value: Arrow[float]) -> Sums:
        """Add the values of one group that arrived together."""
        return Sums(state.total + (pc.sum(value).as_py() or 0.0), state.rows + len(value))

    def merge(self, left: Sums, right: Sums) -> Sums:
        """Join the states of two parts of a group."""
        return Sums(left.total + right.total, left.rows + right.rows)

    def finish(self, state: Sums) -> float | None:
        """Return the mean."""
        return state.total / state.rows if state.rows else None
