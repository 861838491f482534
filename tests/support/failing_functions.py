# SPDX-License-Identifier: Apache-2.0
"""Table function and aggregate that raise: no function of these kinds in docs/examples does."""

from collections.abc import Iterator
from typing import NamedTuple

from updraft import function


class Quotient(NamedTuple):
    value: float


@function.table
def quotients(number: int) -> Iterator[Quotient]:
    """Yield one divided by the number, and by the number below it."""
    yield Quotient(1 / number)
    yield Quotient(1 / (number - 1))


@function.aggregate(name="sum_of_quotients")
class SumOfQuotients:
    """Sum of one divided by each number."""

    def start(self) -> float:
        return 0.0

    def accumulate(self, state: float, number: int) -> float:
        return state + 1 / number

    def merge(self, left: float, right: float) -> float:
        return left + right

    def finish(self, state: float) -> float:
        return state
