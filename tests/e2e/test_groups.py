# SPDX-License-Identifier: Apache-2.0
"""Functions over groups: arguments of each signature, keys that are easily confused, groups from one row to a million.

The matrix covers types, errors and batches (`tests/e2e/kinds/groups.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tests.e2e.errors import told
from tests.e2e.sides import Query, Sides
from tests.support.kinds_of_spark import needs_spark
from tests.support.spark import SPARK_VERSION

_MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BY_NAME = "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName"
_ROWS = 5_000

Rows = Callable[[SparkSession], DataFrame]


def rows_of(*columns: str, ids: range, where: str = "true") -> Rows:
    """Return two partitions of `id` and expressions of it."""
    return lambda spark: spark.range(ids.start, ids.stop, ids.step, 2).selectExpr(*columns).where(where)


def numbers(count: int = _ROWS, where: str = "true") -> Rows:
    """Return keys 0 to 5 and null, in groups of about 700 rows."""
    return rows_of("nullif(id % 7, 6) as key", "id", "concat('row ', id) as text", ids=range(count), where=where)


# Results of each function: a row for each slice that it saw, with the key, the slice's rows and a sum over it.
SEEN = "key string, rows bigint, ids bigint, types string"


def _frame_of(key: Any, frame: pd.DataFrame) -> pd.DataFrame:
    types = str([str(dtype) for dtype in frame.dtypes])
    ids = int(frame["id"].sum()) if "id" in frame else -1
    return pd.DataFrame({"key": [repr(key)], "rows": [len(frame)], "ids": [ids], "types": [types]})


def _table_of(key: Any, table: pa.Table | pa.RecordBatch) -> dict[str, list[Any]]:
    ids = (pc.sum(table.column("id")).as_py() or 0) if "id" in table.schema.names else -1
    return {"key": [repr(key)], "rows": [table.num_rows], "ids": [ids], "types": [str(table.schema)]}


def pandas_of_group(frame: pd.DataFrame) -> pd.DataFrame:
    return _frame_of((), frame)


def pandas_of_key_and_group(key: Any, frame: pd.DataFrame) -> pd.DataFrame:
    return _frame_of(key, frame)


def pandas_of_slices(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield _frame_of((), frame)


def pandas_of_key_and_slices(key: tuple[Any, ...], frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield _frame_of(key, frame)


def arrow_of_group(table: pa.Table) -> pa.Table:
    return pa.table(_table_of((), table))


def arrow_of_key_and_group(key: Any, table: pa.Table) -> pa.Table:
    return pa.table(_table_of(key, table))


def arrow_of_slices(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict(_table_of((), batch))


def arrow_of_key_and_slices(key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict(_table_of(key, batch))


def pandas_of_cogroup(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([_frame_of("left", left), _frame_of("right", right)])


def pandas_of_key_and_cogroup(key: Any, left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([_frame_of(("left", key), left), _frame_of(("right", key), right)])


def arrow_of_cogroup(left: pa.Table, right: pa.Table) -> pa.Table:
    return pa.concat_tables([pa.table(_table_of("left", left)), pa.table(_table_of("right", right))])


def arrow_of_key_and_cogroup(key: Any, left: pa.Table, right: pa.Table) -> pa.Table:
    return pa.concat_tables([pa.table(_table_of(("left", key), left)), pa.table(_table_of(("right", key), right))])


def maps_in_pandas(group: pa.Table) -> pa.Table:
    return pa.table({"x": [repr(value) for value in group.to_pandas()["map"]]})


def applied(groups: Any, function: Any, schema: str) -> DataFrame:
    """Apply a function with applyInPandas or applyInArrow, as its name says."""
    apply = groups.applyInPandas if function.__name__.startswith("pandas") else groups.applyInArrow
    return apply(function, schema)


_SLICING = [pandas_of_slices, pandas_of_key_and_slices, arrow_of_slices, arrow_of_key_and_slices]
GROUPED = [
    pandas_of_group,
    pandas_of_key_and_group,
    arrow_of_group,
    arrow_of_key_and_group,
    *(_SLICING if SPARK_VERSION >= (4, 1) else []),
]
COGROUPED = [pandas_of_cogroup, pandas_of_key_and_cogroup, arrow_of_cogroup, arrow_of_key_and_cogroup]


def grouped(rows: Rows, function: Any, *keys: str, schema: str = SEEN) -> Query:
    """Return a query over groups of expressions."""
    return lambda spark: applied(rows(spark).groupBy(*map(F.expr, keys)), function, schema)


def cogrouped(left: Rows, right: Rows, function: Any, *keys: str) -> Query:
    def query(spark: SparkSession) -> DataFrame:
        groups = left(spark).groupBy(*keys).cogroup(right(spark).groupBy(*keys))
        return applied(groups, function, SEEN)

    return query


def _cogroups(function: Any) -> Query:
    left = numbers(where="key is null or key < 5")
    right = rows_of("nullif(id % 7, 6) as key", "id", ids=range(_ROWS), where="key is null or key > 2")
    return cogrouped(left, right, function, "key")


def _cogroups_of_hard_keys(function: Any) -> Query:
    key = "array(double('nan'), null, double('inf'), 1.5D)[int(id % 4)] as key"
    return cogrouped(rows_of(key, "id", ids=range(60)), rows_of(key, "id", ids=range(1, 60, 2)), function, "key")


KEYS = {"columns": ("key", "id"), "expression": ("key % 2",), "string": ("text",), "both": ("key", "id % 3 as rest")}
HARD_KEYS = {
    "zeros_and_nan": "array(0D, -0D, double('nan'), null, double('inf'), -double('inf'))[int(id % 6)]",
    "floats": "array(0F, -0F, float('nan'), null)[int(id % 4)]",
    "strings": "array('', 'a\\0b', 'žluťoučký', null, ' ')[int(id % 5)]",
    "binary": "array(x'', x'00', x'ff', null)[int(id % 4)]",
    "decimals": "cast(id % 3 as decimal(38, 18)) / 7",
    "timestamps": "timestamp_micros(id % 3 * 1000001)",
    "structs": "struct(id % 2 as a, struct(nullif(id % 3, 1) as c) as b)",
    "arrays": "array(id % 2, nullif(id % 3, 1))",
    "booleans": "array(true, false, null)[int(id % 3)]",
    "nulls": "cast(null as int)",
}


def _all_queries() -> Iterator[tuple[str, Query]]:
    for f in GROUPED:
        yield f"groups-{f.__name__}", grouped(numbers(), f, "key")
        yield f"no_keys-{f.__name__}", grouped(numbers(), f)
    for f in COGROUPED:
        yield f"cogroups-{f.__name__}", _cogroups(f)
        yield f"cogroups_of_hard_keys-{f.__name__}", _cogroups_of_hard_keys(f)
    yield "cogroups_without_keys", cogrouped(numbers(), numbers(), pandas_of_cogroup)
    # Spark finds the rows of a group before it looks at the function, so each key is tested with one function.
    in_turn = itertools.cycle([pandas_of_key_and_group, arrow_of_key_and_group])
    for (name, keys), f in zip(KEYS.items(), in_turn, strict=False):
        yield f"by_{name}-{f.__name__}", grouped(numbers(300), f, *keys)
    for (name, key), f in zip(HARD_KEYS.items(), in_turn, strict=False):
        yield f"by_{name}-{f.__name__}", grouped(rows_of(f"{key} as key", "id", ids=range(60)), f, "key")


QUERIES = dict(_all_queries())


@pytest.mark.parametrize("query", QUERIES)
def test_a_function_gets_the_groups_that_stock_gives_it(sides: Sides, query: str) -> None:
    assert sides.assert_same(QUERIES[query]).rows


@pytest.mark.parametrize("function", [*GROUPED, *COGROUPED])
def test_no_rows_give_no_rows(sides: Sides, function: Any) -> None:
    nothing = numbers(where="id < 0")
    query = cogrouped(nothing, nothing, function, "key") if function in COGROUPED else grouped(nothing, function, "key")
    assert sides.assert_same(query).rows == []


# A slice of one row costs stock as much as a long one.
@pytest.mark.parametrize(("max_records", "rows"), [("1", 140), ("7", 1_000), ("100", 1_000), ("0", 1_000)])
@pytest.mark.parametrize(
    "function", [f for f in GROUPED if f in (pandas_of_slices, arrow_of_key_and_slices, pandas_of_group)]
)
def test_a_group_is_sliced_as_the_conf_says(sides: Sides, function: Any, max_records: str, rows: int) -> None:
    sides.assert_same(grouped(numbers(rows), function, "key"), confs={_MAX_RECORDS: max_records})


@pytest.mark.parametrize(("function", "max_records"), [(pandas_of_key_and_cogroup, "7"), (arrow_of_cogroup, "10000")])
def test_many_small_cogroups(sides: Sides, function: Any, max_records: str) -> None:
    left = rows_of("id % 199 as key", "id", ids=range(1_000))
    right = rows_of("id as key", "id", ids=range(0, 300, 3))
    sides.assert_same(cogrouped(left, right, function, "key"), confs={_MAX_RECORDS: max_records})


@pytest.mark.parametrize("number", [None, 1])
def test_a_null_where_none_is_declared_fails_as_on_stock(sides: Sides, number: int | None) -> None:
    schema = T.StructType([T.StructField("number", T.LongType(), nullable=False), T.StructField("id", T.LongType())])

    def one_row(group: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"number": pd.Series([number], dtype="Int64"), "id": group["id"].head(1)})

    def query(spark: SparkSession) -> DataFrame:
        return spark.range(3).groupBy("id").applyInPandas(one_row, schema).orderBy("id")

    stock, ours = sides.stock(query), sides.updraft(query)
    assert (stock.error is None) is (number is not None)
    assert type(ours.error) is type(stock.error), ours.error
    assert ours.rows == stock.rows
    sides.assert_ran_on_the_pool(ours)


def test_the_nulls_of_a_group_show_in_no_other_that_shares_its_request(sides: Sides) -> None:
    rows = rows_of("id", "map('k', nullif(id, 3)) as map", ids=range(8))
    sides.assert_same(lambda spark: rows(spark).groupBy("id").applyInArrow(maps_in_pandas, "x string"))


def pandas_swapped(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"b": frame["id"], "a": frame["id"] * 2})


def arrow_swapped(table: pa.Table) -> pa.Table:
    return pa.table({"b": table["id"], "a": pc.multiply(table["id"], 2)})


@pytest.mark.parametrize("by_name", ["true", "false"])
@pytest.mark.parametrize("function", [pandas_swapped, arrow_swapped])
def test_columns_are_assigned_as_the_conf_says(sides: Sides, function: Any, by_name: str) -> None:
    query = grouped(numbers(20), function, "key", schema="a bigint, b bigint")
    sides.assert_same(query, confs={_BY_NAME: by_name})


def pandas_none(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.iloc[:0]


def arrow_few(table: pa.Table) -> pa.Table:
    return table if table.num_rows > 714 else table.slice(0, 0)


@pytest.mark.parametrize("function", [pandas_none, arrow_few])
def test_a_function_may_give_nothing_for_a_group(sides: Sides, function: Any) -> None:
    sides.assert_same(grouped(numbers(), function, "key", schema="key bigint, id bigint, text string"))


def arrow_raising_after_a_slice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield next(batches)
    raise ValueError("after the first slice")


def test_a_failure_after_the_first_slice_is_what_stock_says_it_is(sides: Sides) -> None:
    needs_spark((4, 1), "iterators over groups")
    query = grouped(numbers(30), arrow_raising_after_a_slice, "key", schema="key bigint, id bigint, text string")
    stock, ours = sides.stock(query), sides.updraft(query)
    assert stock.error is not None
    assert type(ours.error) is type(stock.error)
    assert told(ours.error) == told(stock.error)


@pytest.mark.parametrize(
    ("key", "count", "sorts"),
    [
        ("key", _ROWS, False),
        # Each row is a group of its own.
        ("text", 400, False),
        ("cast(key as decimal(20, 2))", _ROWS, False),
        ("cast(key as double)", _ROWS, True),
    ],
)
@pytest.mark.parametrize("function", [pandas_of_group, arrow_of_cogroup])
def test_spark_sorts_only_what_cannot_be_gathered(
    sides: Sides, function: Any, key: str, count: int, sorts: bool
) -> None:
    """Keys of one form are gathered without a sort, in the order that a sort would give."""

    def rows(spark: SparkSession) -> DataFrame:
        return numbers(count)(spark).selectExpr(f"{key} as key", "id")

    query = cogrouped(rows, rows, function, "key") if function in COGROUPED else grouped(rows, function, "key")
    plan = sides.assert_same(query).plan
    assert sides.compares_stock_with_itself or ("Sort [" in plan) == sorts, plan


def pandas_ids(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"ids": [str(list(frame["id"]))]})


@pytest.mark.parametrize("order", [["key", "-id"], ["-id"], ["text"]])
def test_a_group_keeps_the_order_that_its_rows_came_in(sides: Sides, order: list[str]) -> None:
    def rows(spark: SparkSession) -> DataFrame:
        return numbers()(spark).repartition(2, "key").sortWithinPartitions(*map(F.expr, order))

    sides.assert_same(grouped(rows, pandas_ids, "key", schema="ids string"))


def test_groups_of_a_function_that_is_followed_by_another(sides: Sides) -> None:
    plus_one = F.arrow_udf(lambda column: pc.add(column, 1), "bigint", F.ArrowUDFType.SCALAR)

    def query(spark: SparkSession) -> DataFrame:
        groups = numbers()(spark).select(plus_one("key").alias("key"), "id").groupBy("key")
        return applied(groups, arrow_of_key_and_group, SEEN).select(plus_one("rows"), "ids").groupBy("ids").count()

    sides.assert_same(query)


def test_a_limit_ends_the_exchange(sides: Sides) -> None:
    answer = sides.updraft(lambda spark: grouped(numbers(), pandas_of_group, "key")(spark).limit(1))
    assert (answer.error, len(answer.rows)) == (None, 1)


def test_twenty_thousand_groups(sides: Sides) -> None:
    query = grouped(rows_of("id as key", "id", ids=range(20_000)), arrow_of_group, "key")
    answer = sides.updraft(lambda spark: query(spark).select(F.count("*"), F.sum("ids")))
    assert answer.error is None
    sides.assert_ran_on_the_pool(answer)
    assert answer.rows == [(20_000, sum(range(20_000)))]


@pytest.mark.timeout(300)
def test_a_group_of_a_million_rows_streams(sides: Sides) -> None:
    """At 100 bytes a row, 100 MB pass through a worker that holds only a few slices at a time."""
    needs_spark((4, 1), "iterators over groups")

    def arrow_peak(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import resource

        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        rows = 0
        for batch in batches:
            rows += batch.num_rows
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
        yield pa.RecordBatch.from_pydict({"rows": [rows], "grown_mib": [grown_kib // 1024]})

    rows = rows_of("1 as key", "id", "rpad(string(id), 90, 'x') as text", ids=range(1_000_000))
    query = grouped(rows, arrow_peak, "key", schema="rows bigint, grown_mib bigint")
    answer = sides.updraft(query)
    assert answer.error is None
    sides.assert_ran_on_the_pool(answer)
    assert answer.rows[0][0] == 1_000_000
    assert answer.rows[0][1] < 50
