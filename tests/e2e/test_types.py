# SPDX-License-Identifier: Apache-2.0
"""Every kind of function over every type, on columnar and row children, over both transports.

Many types share one query; if such a query fails, each of its types is queried alone, so that one failure cannot hide
another. Stock is queried once, because its answer depends on neither child nor transport. A child and a transport go
together, because either child produces the same Arrow data.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tests.e2e.kinds import KINDS, takes_the_way_of_another
from tests.e2e.kinds.kind import Kind, identity_name, seen_name
from tests.e2e.sides import Answer, Sides, canonical
from tests.e2e.types import STORED, TYPE_CASES, TypeCase
from tests.support.spark import SPARK_VERSION

_VECTORIZED = "spark.sql.parquet.enableVectorizedReader"
# The function's child and the pool's transport; stock always uses rows.
_ROWS, _COLUMNS = "row-tcp", "columnar-unix"
_STOCK = "stock"
_OVER_VECTORS = re.compile(r"Flight\w+ .*\n *\+- FileScan parquet ")
# Cases that a pool answers although an older stock fails: first Spark without the failure, kind, type, and a kind for
# which stock gives the same values.
_BEYOND_STOCK = [
    # A list column without rows comes without offsets, which pyarrow reads, so the worker dies.
    ((4, 2), "cogroup_pandas", "array_array", "grouped_pandas"),
    ((4, 2), "cogroup_pandas_key", "array_array", "grouped_pandas"),
    # The JVM has the result, and does not recognize its own type.
    ((4, 1), "pandas_udf", "point_udt", "map_in_pandas"),
    ((4, 1), "pandas_udf_struct", "point_udt", "map_in_pandas"),
    ((4, 1), "pandas_udf_iterator", "point_udt", "map_in_pandas"),
    ((4, 1), "udtf_arrow_lateral", "point_udt", "udf_arrow"),
    ((4, 1), "udtf_arrow_table", "point_udt", "udf_arrow"),
]
# Kinds that get vectors from the connector in the same way as pandas_udf, arrow_udf or map_in_arrow.
_SENT_LIKE_OTHERS = ("pandas_udf_struct", "pandas_udf_iterator", "arrow_udf_iterator", "map_in_pandas")
# Functions over a type that does not travel stay with Spark, whose errors are compared with themselves: a few kinds do.
_STAYS_WITH_SPARK, _STEP = "calendar_interval", 3
_STOCK_FAILS = {(kind, case) for before, kind, case, _ in _BEYOND_STOCK if before > SPARK_VERSION}


class Observations:
    """Answers by kind, types and way, queried once each."""

    def __init__(self, sides: Sides, table: Path, items: Iterable[pytest.Item]):
        """Take the tests of this run: types that it leaves out share no query."""
        self._sides = sides
        self._table = table
        self._tested = set(map(_kind_and_case, filter(_is_of_the_grid, items)))
        self._answer = functools.cache(self._ask)

    def of(self, kind: Kind, case: TypeCase, way: str) -> Answer:
        """Return the answer with this case's columns, shared with other cases if that worked."""
        shared = self._answer(kind, self._shared_with(kind, case, way), way)
        on_its_side = way == _STOCK or self._sides.compares_stock_with_itself or shared.ran_on_the_pool
        return shared if shared.error is None and on_its_side else self._answer(kind, (case,), way)

    def _shared_with(self, kind: Kind, case: TypeCase, way: str) -> Sequence[TypeCase]:
        """Return the cases that share a query: those that neither side refuses."""
        if _is_asked_alone(kind, case):
            return (case,)
        return tuple(
            other
            for other in TYPE_CASES
            if not _is_asked_alone(kind, other)
            and way in _ways(kind, other)
            and (other is case or (kind.name, other.name) in self._tested)
        )

    def _ask(self, kind: Kind, cases: Sequence[TypeCase], way: str) -> Answer:
        def query(spark: SparkSession) -> DataFrame:
            # With the partition column, a projection between scan and function would turn vectors into rows.
            table = spark.read.option("recursiveFileLookup", way == _COLUMNS).schema(STORED).parquet(str(self._table))
            return kind.query(_columns(table, cases), cases)

        confs = {_VECTORIZED: "true" if way == _COLUMNS else "false"}
        if way == _STOCK:
            return self._sides.stock(query, confs)
        return self._sides.updraft(query, way.split("-")[1], confs)


def _columns(frame: DataFrame, cases: Sequence[TypeCase]) -> DataFrame:
    derived = {case.name: F.expr(case.expression) for case in cases if case.expression is not None}
    return frame.withColumns(derived).select("id", *(case.name for case in cases))


def _is_of_the_grid(item: pytest.Item) -> bool:
    return any(marker.args == ("types",) for marker in item.iter_markers("matrix"))


def _kind_and_case(item: pytest.Item) -> tuple[str, str]:
    assert isinstance(item, pytest.Function)
    kind, case = cast("Kind", item.callspec.params["kind"]), cast("TypeCase", item.callspec.params["case"])
    return kind.name, case.name


def _is_asked_alone(kind: Kind, case: TypeCase) -> bool:
    return kind.alone or case.name in kind.refuses or (kind.name, case.name) in _STOCK_FAILS


def _ways(kind: Kind, case: TypeCase) -> Sequence[str]:
    # Spark puts a projection under derived columns, and a shuffle or a sort under groups; both make rows. Refusals come
    # before any data is sent.
    by_rows_alone = kind.over_groups or case.expression is not None or case.name in kind.refuses
    return (_STOCK, _ROWS) if by_rows_alone else (_STOCK, _ROWS, _COLUMNS)


@pytest.fixture(scope="module")
def observations(sides: Sides, table: Path, request: pytest.FixtureRequest) -> Observations:
    return Observations(sides, table, request.session.items)


def _grid() -> Iterator[Any]:
    for number, kind in enumerate(KINDS):
        for case in TYPE_CASES:
            for way in _ways(kind, case)[1:] if (kind.name, case.name) not in _STOCK_FAILS else ():
                # Spark 4.0 plans this one as a different kind than the function says.
                marks = [pytest.mark.one_of_each] if (kind.name, case.name) == ("udf_arrow", "point_udt") else []
                like_others = way == _COLUMNS and kind.name in _SENT_LIKE_OTHERS
                stays = case.name == _STAYS_WITH_SPARK and number % _STEP
                if takes_the_way_of_another(kind) or like_others or stays:
                    marks.append(pytest.mark.campaign)
                yield pytest.param(kind, case, way, id=f"{kind.name}-{case.name}-{way}", marks=marks)


@pytest.mark.matrix("types")
@pytest.mark.parametrize(("kind", "case", "way"), list(_grid()))
def test_a_function_sees_and_returns_what_stock_does(
    observations: Observations, sides: Sides, kind: Kind, case: TypeCase, way: str
) -> None:
    stock, ours = observations.of(kind, case, _STOCK), observations.of(kind, case, way)

    refused = case.name in kind.refuses
    assert (stock.error is not None) == refused, str(stock.error)
    assert type(ours.error) is type(stock.error), str(ours.error)
    if refused:
        return
    assert ours.column(identity_name(case)) == stock.column(identity_name(case))
    assert ours.column(seen_name(case)) == stock.column(seen_name(case))
    assert ours.column("id") == stock.column("id")
    sides.assert_ran_on_the_pool(ours)
    if way == _COLUMNS:
        assert "Batched: true" in ours.plan
        # Spark builds this kind's struct row by row.
        assert kind.name == "arrow_udtf" or _OVER_VECTORS.search(ours.plan), ours.plan


@pytest.mark.parametrize(("before", "name", "type_name", "alike"), _BEYOND_STOCK)
def test_where_only_stock_fails_a_function_gives_what_others_do(
    observations: Observations, sides: Sides, before: tuple[int, int], name: str, type_name: str, alike: str
) -> None:
    if before <= SPARK_VERSION:
        pytest.skip("this Spark does not fail there")
    kinds, cases = {kind.name: kind for kind in KINDS}, {case.name: case for case in TYPE_CASES}
    if type_name not in cases:
        pytest.skip(f"pyspark {SPARK_VERSION[0]}.{SPARK_VERSION[1]} has no type {type_name}")
    kind, case = kinds[name], cases[type_name]
    assert isinstance(observations.of(kind, case, _STOCK).error, Py4JJavaError)

    # The text that table functions see differs from that of all other kinds.
    shown = (identity_name(case), seen_name(case)) if "pandas" in name else (identity_name(case),)
    expected = _values(observations.of(kinds[alike], case, _STOCK), shown)
    for way in _ways(kind, case)[1:]:
        ours = observations.of(kind, case, way)
        assert _values(ours, shown) == expected
        sides.assert_ran_on_the_pool(ours)


def _values(answer: Answer, names: Sequence[str]) -> set[tuple[str, ...]]:
    """Return the values of some columns for each `id`; structs are unwrapped."""
    assert answer.error is None
    rows = (dict(zip(answer.columns, row, strict=True)) for row in answer.rows)
    return {(str(row["id"]), *(canonical(_in_struct(row[name])) for name in names)) for row in rows}


def _in_struct(value: Any) -> Any:
    return value["value"] if isinstance(value, Row) and "value" in value else value
