# SPDX-License-Identifier: Apache-2.0
"""A table function and an aggregate that raise: no function of docs/examples of these kinds does."""

from collections.abc import Iterator
from typing import NamedTuple

from updraft import function


class Quotient(NamedTuple):
    value: float


@function.table
def quotients(number: int) -> Iterator[Quotient]:
    """One over the number, and over the one below it."""
    yield Quotient(1 / number)
    yield Quotient(1 / (number - 1))


@function.aggregate(name="sum_of_quotients")
class SumOfQuotients:
    """Of one over each number."""

    def start(self) -> float:
        return 0.0

    def accumulate(self, state: float, number: int) -> float:
        return state + 1 / number

    def merge(self, left: float, right: float) -> float:
        return left + right

    def finish(self, state: float) -> float:
        return state
