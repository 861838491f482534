# SPDX-License-Identifier: Apache-2.0
"""Every kind of function over every type, on columnar and row children, over both transports.

Many types share one query; when such a query fails, each of its types is asked alone, so that one cannot hide another.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.kinds import KINDS
from tests.e2e.kinds.kind import Kind, identity_name, seen_name
from tests.e2e.sides import Answer, Sides
from tests.e2e.types import TYPE_CASES, TypeCase

_VECTORIZED = "spark.sql.parquet.enableVectorizedReader"
_CHILDREN = {"columnar": {_VECTORIZED: "true"}, "row": {_VECTORIZED: "false"}}
_TRANSPORTS = ("tcp", "unix")


class Observations:
    """Answers by kind, types, child and side, asked once each."""

    def __init__(self, sides: Sides, table: Path):
        self._sides = sides
        self._table = table
        self._answer = functools.cache(self._ask)

    def of(self, kind: Kind, case: TypeCase, child: str, side: str) -> Answer:
        """The answer that has this case's columns: shared with other cases where that worked."""
        shared = self._answer(kind, _shared_with(kind, case), child, side)
        usable = shared.error is None and (side == "stock" or self._sides.compares_stock_with_itself)
        if usable or shared.ran_on_the_pool:
            return shared
        return self._answer(kind, (case,), child, side)

    def _ask(self, kind: Kind, cases: Sequence[TypeCase], child: str, side: str) -> Answer:
        def query(spark: SparkSession) -> DataFrame:
            return kind.query(_columns(spark.read.parquet(str(self._table)), cases), cases)

        if side == "stock":
            return self._sides.stock(query, _CHILDREN[child])
        return self._sides.updraft(query, side, _CHILDREN[child])


def _columns(frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
    derived = {case.name: F.expr(case.expression) for case in cases if case.expression is not None}
    return frame.withColumns(derived).select("id", *(case.name for case in cases))


def _shared_with(kind: Kind, case: TypeCase) -> Sequence[TypeCase]:
    """The cases that are asked in the same query: those that neither side refuses."""
    if case.name in kind.refuses:
        return (case,)
    accepted = [other for other in TYPE_CASES if other.name not in kind.refuses]
    if kind.over_groups:
        return tuple(accepted)
    # Derived columns put a projection, which makes rows, between a columnar scan and the operator.
    return tuple(other for other in accepted if (other.expression is None) == (case.expression is None))


@pytest.fixture(scope="module")
def observations(sides: Sides, table: Path) -> Observations:
    return Observations(sides, table)


def _grid() -> Iterator[Any]:
    for kind, case, child, transport in itertools.product(KINDS, TYPE_CASES, _CHILDREN, _TRANSPORTS):
        # What is refused is refused before any byte travels; each failure costs stock two workers.
        if case.name in kind.refuses and (child, transport) != ("row", "tcp"):
            continue
        if kind.over_groups and child != "row":
            continue
        yield pytest.param(kind, case, child, transport, id=f"{kind.name}-{case.name}-{child}-{transport}")


@pytest.mark.matrix("types")
@pytest.mark.parametrize(("kind", "case", "child", "transport"), list(_grid()))
def test_a_function_sees_and_returns_what_stock_does(
    observations: Observations, sides: Sides, kind: Kind, case: TypeCase, child: str, transport: str
) -> None:
    stock = observations.of(kind, case, child, "stock")
    ours = observations.of(kind, case, child, transport)

    refused = case.name in kind.refuses
    assert (stock.error is not None) == refused, stock.error
    assert type(ours.error) is type(stock.error), ours.error
    if refused:
        return
    assert ours.column(identity_name(case)) == stock.column(identity_name(case))
    assert ours.column(seen_name(case)) == stock.column(seen_name(case))
    assert ours.column("id") == stock.column("id")
    sides.assert_ran_on_the_pool(ours)
    if child == "columnar" and case.expression is None and not kind.over_groups:
        assert "Batched: true" in ours.plan
