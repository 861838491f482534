# SPDX-License-Identifier: Apache-2.0
"""Functions over groups: every signature, keys that are hard to tell apart, groups from one row to millions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.sides import Query, Sides
from tests.support.kinds_of_spark import needs_spark

_MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BY_NAME = "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName"
_ROWS = 5_000

Rows = Callable[[SparkSession], DataFrame]


def rows_of(*columns: str, ids: range, where: str = "true") -> Rows:
    """Two partitions of `id` and what is computed of it."""
    return lambda spark: spark.range(ids.start, ids.stop, ids.step, 2).selectExpr(*columns).where(where)


def numbers(count: int = _ROWS, where: str = "true") -> Rows:
    """Keys 0 to 5 and null; groups of about 700 rows."""
    return rows_of("nullif(id % 7, 6) as key", "id", "concat('row ', id) as text", ids=range(count), where=where)


# What each function gives: a row for each slice that it saw, with the key, the slice's rows and a sum over it.
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


def applied(groups: Any, function: Any, schema: str) -> DataFrame:
    """applyInPandas or applyInArrow, as the function's name says."""
    if function.__name__.endswith("slices"):
        needs_spark((4, 1), "iterators over groups")
    apply = groups.applyInPandas if function.__name__.startswith("pandas") else groups.applyInArrow
    return apply(function, schema)


GROUPED = [
    pandas_of_group,
    pandas_of_key_and_group,
    pandas_of_slices,
    pandas_of_key_and_slices,
    arrow_of_group,
    arrow_of_key_and_group,
    arrow_of_slices,
    arrow_of_key_and_slices,
]
COGROUPED = [pandas_of_cogroup, pandas_of_key_and_cogroup, arrow_of_cogroup, arrow_of_key_and_cogroup]


def grouped(rows: Rows, function: Any, *keys: str, schema: str = SEEN) -> Query:
    """The groups of expressions."""
    return lambda spark: applied(rows(spark).groupBy(*map(F.expr, keys)), function, schema)


def cogrouped(left: Rows, right: Rows, function: Any, *keys: str) -> Query:
    def query(spark: SparkSession) -> DataFrame:
        groups = left(spark).groupBy(*keys).cogroup(right(spark).groupBy(*keys))
        return applied(groups, function, SEEN)

    return query


@pytest.mark.parametrize("function", GROUPED, ids=lambda function: function.__name__)
def test_a_function_gets_the_groups_that_stock_gives_it(sides: Sides, function: Any) -> None:
    answer = sides.assert_same(grouped(numbers(), function, "key"))
    assert sum(row[1] for row in answer.rows) == _ROWS


@pytest.mark.parametrize("max_records", ["1", "7", "300", "0"])
@pytest.mark.parametrize("function", [pandas_of_slices, arrow_of_key_and_slices, pandas_of_group])
def test_a_group_is_sliced_as_the_conf_says(sides: Sides, function: Any, max_records: str) -> None:
    sides.assert_same(grouped(numbers(1_000), function, "key"), confs={_MAX_RECORDS: max_records})


@pytest.mark.parametrize("function", GROUPED, ids=lambda function: function.__name__)
def test_without_keys_all_rows_are_one_group(sides: Sides, function: Any) -> None:
    answer = sides.assert_same(grouped(numbers(), function))
    assert sum(row[1] for row in answer.rows) == _ROWS


@pytest.mark.parametrize("function", [pandas_of_key_and_group, arrow_of_key_and_group])
@pytest.mark.parametrize(
    "keys",
    [("key", "id"), ("key % 2",), ("text",), ("key", "id % 3 as rest")],
    ids=["columns", "expression", "string", "both"],
)
def test_keys_may_be_columns_or_expressions(sides: Sides, function: Any, keys: Any) -> None:
    sides.assert_same(grouped(numbers(300), function, *keys))


HARD_KEYS = {
    "zeros and NaN": "array(0D, -0D, double('nan'), null, double('inf'), -double('inf'))[int(id % 6)]",
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


@pytest.mark.parametrize("function", [pandas_of_key_and_group, arrow_of_key_and_slices])
@pytest.mark.parametrize("name", HARD_KEYS)
def test_keys_that_are_hard_to_tell_apart(sides: Sides, function: Any, name: str) -> None:
    rows = rows_of(f"{HARD_KEYS[name]} as key", "id", ids=range(60))
    sides.assert_same(grouped(rows, function, "key"))


@pytest.mark.parametrize("function", [*GROUPED, *COGROUPED], ids=lambda function: function.__name__)
def test_no_rows_give_no_rows(sides: Sides, function: Any) -> None:
    nothing = numbers(where="id < 0")
    query = cogrouped(nothing, nothing, function, "key") if function in COGROUPED else grouped(nothing, function, "key")
    assert sides.assert_same(query).rows == []


@pytest.mark.parametrize("function", COGROUPED, ids=lambda function: function.__name__)
def test_cogroups_pair_what_both_sides_have(sides: Sides, function: Any) -> None:
    left = numbers(where="key is null or key < 5")
    right = rows_of("nullif(id % 7, 6) as key", "id", ids=range(_ROWS), where="key is null or key > 2")
    sides.assert_same(cogrouped(left, right, function, "key"))


@pytest.mark.parametrize("max_records", ["7", "10000"])
@pytest.mark.parametrize("function", [pandas_of_key_and_cogroup, arrow_of_cogroup])
def test_many_small_cogroups(sides: Sides, function: Any, max_records: str) -> None:
    left = rows_of("id % 199 as key", "id", ids=range(1_000))
    right = rows_of("id as key", "id", ids=range(0, 300, 3))
    sides.assert_same(cogrouped(left, right, function, "key"), confs={_MAX_RECORDS: max_records})


@pytest.mark.parametrize("function", COGROUPED, ids=lambda function: function.__name__)
def test_cogroups_of_hard_keys(sides: Sides, function: Any) -> None:
    key = "array(double('nan'), null, double('inf'), 1.5D)[int(id % 4)] as key"
    left, right = rows_of(key, "id", ids=range(60)), rows_of(key, "id", ids=range(1, 60, 2))
    sides.assert_same(cogrouped(left, right, function, "key"))


def test_cogroups_without_keys(sides: Sides) -> None:
    sides.assert_same(cogrouped(numbers(), numbers(), pandas_of_cogroup))


@pytest.mark.parametrize("by_name", ["true", "false"])
def test_columns_are_assigned_as_the_conf_says(sides: Sides, by_name: str) -> None:
    def pandas_swapped(frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"b": frame["id"], "a": frame["id"] * 2})

    def arrow_swapped(table: pa.Table) -> pa.Table:
        return pa.table({"b": table["id"], "a": pc.multiply(table["id"], 2)})

    for function in (pandas_swapped, arrow_swapped):
        query = grouped(numbers(20), function, "key", schema="a bigint, b bigint")
        sides.assert_same(query, confs={_BY_NAME: by_name})


def test_a_function_may_give_nothing_for_a_group(sides: Sides) -> None:
    def pandas_none(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.iloc[:0]

    def arrow_few(table: pa.Table) -> pa.Table:
        return table if table.num_rows > 714 else table.slice(0, 0)

    schema = "key bigint, id bigint, text string"
    for function in (pandas_none, arrow_few):
        sides.assert_same(grouped(numbers(), function, "key", schema=schema))


def pandas_raising(frame: pd.DataFrame) -> pd.DataFrame:
    raise KeyError("žluťoučký")


def arrow_raising_after_a_slice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield next(batches)
    raise ValueError("after the first slice")


def pandas_of_the_wrong_type(frame: pd.DataFrame) -> pd.DataFrame:
    return frame["id"].sum()


def arrow_of_the_wrong_type(table: pa.Table) -> pa.Table:
    return table.to_pandas()


def pandas_without_a_column(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[["key"]]


def arrow_without_a_column(table: pa.Table) -> pa.Table:
    return table.select(["key"])


def arrow_with_another_type(table: pa.Table) -> pa.Table:
    return table.set_column(1, "id", pc.cast(table["id"], pa.string()))


def pandas_that_cannot_be_cast(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(id="no number")


def arrow_raising_in_a_cogroup(left: pa.Table, right: pa.Table) -> pa.Table:
    raise RuntimeError("of both sides")


FAILING = [
    pandas_raising,
    arrow_raising_after_a_slice,
    pandas_of_the_wrong_type,
    arrow_of_the_wrong_type,
    pandas_without_a_column,
    arrow_without_a_column,
    arrow_with_another_type,
    pandas_that_cannot_be_cast,
]


def _said(error: Exception | None) -> list[str]:
    """The lines that say what went wrong: those at the left of Python's traceback."""
    return [line for line in str(error).splitlines() if line[:1].isalpha() and ("Error" in line or "[" in line)][-1:]


@pytest.mark.parametrize("function", [*FAILING, arrow_raising_in_a_cogroup], ids=lambda function: function.__name__)
def test_a_failure_is_what_stock_says_it_is(sides: Sides, function: Any) -> None:
    rows = rows_of("id % 3 as key", "id", ids=range(30))

    def query(spark: SparkSession) -> DataFrame:
        groups = rows(spark).groupBy("key")
        both = groups if function in FAILING else groups.cogroup(rows(spark).groupBy("key"))
        return applied(both, function, "key bigint, id bigint")

    stock, ours = sides.stock(query), sides.updraft(query)
    assert isinstance(stock.error, PythonException)
    assert type(ours.error) is type(stock.error)
    assert _said(ours.error) == _said(stock.error) != []
    assert sides.compares_stock_with_itself or "FlightGroupedMap" in ours.plan or "FlightCogroupedMap" in ours.plan


def test_groups_of_a_function_that_is_followed_by_another(sides: Sides) -> None:
    plus_one = F.arrow_udf(lambda column: pc.add(column, 1), "bigint", F.ArrowUDFType.SCALAR)

    def query(spark: SparkSession) -> DataFrame:
        groups = numbers()(spark).select(plus_one("key").alias("key"), "id").groupBy("key")
        return applied(groups, arrow_of_key_and_group, SEEN).select(plus_one("rows"), "ids").groupBy("ids").count()

    sides.assert_same(query)


def test_a_limit_ends_the_exchange(sides: Sides) -> None:
    answer = sides.updraft(lambda spark: grouped(numbers(), pandas_of_slices, "key")(spark).limit(1))
    assert (answer.error, len(answer.rows)) == (None, 1)


def test_a_hundred_thousand_groups(sides: Sides) -> None:
    query = grouped(rows_of("id as key", "id", ids=range(100_000)), arrow_of_slices, "key")
    answer = sides.updraft(lambda spark: query(spark).select(F.count("*"), F.sum("ids")))
    assert answer.error is None
    sides.assert_ran_on_the_pool(answer)
    assert answer.rows == [(100_000, sum(range(100_000)))]


@pytest.mark.timeout(300)
def test_one_group_of_millions_streams(sides: Sides) -> None:
    """A row of 100 bytes: 200 MB pass a worker that holds a few slices of them."""

    def arrow_peak(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import resource

        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        rows = 0
        for batch in batches:
            rows += batch.num_rows
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
        yield pa.RecordBatch.from_pydict({"rows": [rows], "grown_mib": [grown_kib // 1024]})

    rows = rows_of("1 as key", "id", "rpad(string(id), 90, 'x') as text", ids=range(2_000_000))
    query = grouped(rows, arrow_peak, "key", schema="rows bigint, grown_mib bigint")
    answer = sides.updraft(query)
    assert answer.error is None
    sides.assert_ran_on_the_pool(answer)
    assert answer.rows[0][0] == 2_000_000
    assert answer.rows[0][1] < 100
