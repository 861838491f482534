# SPDX-License-Identifier: Apache-2.0
"""Functions over groups, through real workers and PySpark's own code, and input that breaks the rules of groups."""

import sys
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pool_driver import Reply, Zygotes, batches_of, exchange, grouped_requests, raw_exchange, running_pool
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StructField, StructType
from session_commands import (
    COGROUPED_MAP_ARROW,
    COGROUPED_MAP_PANDAS,
    GROUPED_AGG_ARROW,
    GROUPED_MAP_ARROW,
    GROUPED_MAP_ARROW_ITER,
    GROUPED_MAP_PANDAS,
    GROUPED_MAP_PANDAS_ITER,
    RUNNER_CONF,
    WINDOW_AGG_ARROW,
    rows_struct,
    scalar_arrow,
    session_command,
    udf,
)

from updraft.v1 import exchange_pb2
from updraft_server.ipc.frames import FrameKind

# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

RESULT = StructType([StructField("key", LongType()), StructField("rows", LongType()), StructField("sum", LongType())])
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])
ROW_SCHEMA = pa.schema([("_0", pa.struct(list(SCHEMA)))])
# Number of values that follow, number of keys, offset of the key, offsets of the values.
ONE_INPUT = (4, 1, 0, 0, 1)
TWO_INPUTS = (*ONE_INPUT, *ONE_INPUT)

Batches = list[tuple[pa.RecordBatch, Sequence[int], int]]


def rows(*pairs: tuple[int, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"key": key, "value": value} for key, value in pairs], schema=SCHEMA)


def command(eval_type: int, function: Any, offsets: Sequence[int] = ONE_INPUT, **options: Any) -> Any:
    return session_command(eval_type, udf(function, RESULT, offsets=offsets), **options)


async def run(zygotes: Zygotes, schema: pa.Schema, request: Any, batches: Batches) -> Reply:
    async with running_pool(zygotes) as pool:
        return await raw_exchange(pool, schema, grouped_requests(batches), request)


async def results(zygotes: Zygotes, schema: pa.Schema, request: Any, batches: Batches) -> list[tuple[int, ...]]:
    reply = await run(zygotes, schema, request, batches)
    assert reply.error is None, reply.error
    assert reply.ending is FrameKind.DONE
    return [tuple(row["_0"].values()) for row in reply.table.to_pylist()]


def summary_table(key, table):
    return pa.table({"key": [key[0].as_py()], "rows": [table.num_rows], "sum": [pc.sum(table["value"]).as_py()]})


def summary_frame(key, frame):
    return pd.DataFrame({"key": [key[0]], "rows": [len(frame)], "sum": [frame["value"].sum()]})


def count_batches(key, batches):
    for batch in batches:
        total = pc.sum(batch["value"]).as_py()
        yield pa.RecordBatch.from_pydict({"key": [key[0].as_py()], "rows": [batch.num_rows], "sum": [total]})


def count_frames(key, frames):
    for frame in frames:
        yield pd.DataFrame({"key": [key[0]], "rows": [len(frame)], "sum": [frame["value"].sum()]})


# Groups 1 and 2 share a batch; group 3 spans three.
SPANNING = [((1, 10), (2, 20), (2, 21), (3, 30)), ((3, 31), (3, 32)), ((3, 33), (4, 40))]
ENDS: list[Sequence[int]] = [(1, 3), (), (1, 2)]
GROUPED = [(1, 1, 10), (2, 2, 41), (3, 4, 126), (4, 1, 40)]


@pytest.mark.parametrize(
    ("eval_type", "function", "wraps"),
    [(GROUPED_MAP_ARROW, summary_table, True), (GROUPED_MAP_PANDAS, summary_frame, False)],
)
async def test_a_group_is_whole_whatever_batches_it_came_in(
    zygotes: Zygotes, eval_type: int, function: Any, wraps: bool
) -> None:
    wrap = rows_struct if wraps else lambda batch: batch
    batches = [(wrap(rows(*part)), ends, 0) for part, ends in zip(SPANNING, ENDS, strict=True)]
    schema = ROW_SCHEMA if wraps else SCHEMA
    assert await results(zygotes, schema, command(eval_type, function), batches) == GROUPED


@pytest.mark.parametrize(
    ("eval_type", "function", "wraps"),
    [(GROUPED_MAP_ARROW_ITER, count_batches, True), (GROUPED_MAP_PANDAS_ITER, count_frames, False)],
)
async def test_an_iterator_function_reads_a_group_in_slices(
    zygotes: Zygotes, eval_type: int, function: Any, wraps: bool
) -> None:
    wrap = rows_struct if wraps else lambda batch: batch
    batches: Batches = [(wrap(rows((1, 1), (1, 2), (1, 3), (2, 4))), (3,), 0), (wrap(rows((2, 5))), (1,), 0)]
    request = command(eval_type, function, limits=exchange_pb2.Limits(max_records_per_batch=2))
    expected = [(1, 2, 3), (1, 1, 3), (2, 1, 4), (2, 1, 5)]
    assert await results(zygotes, ROW_SCHEMA if wraps else SCHEMA, request, batches) == expected


async def test_a_function_may_leave_groups_unread(zygotes: Zygotes) -> None:
    def first_only(batches):
        first = next(batches)
        yield pa.RecordBatch.from_pydict({"key": first["key"][:1], "rows": [1], "sum": first["value"][:1]})

    batches = [(rows_struct(rows(*part)), ends, 0) for part, ends in zip(SPANNING, ENDS, strict=True)]
    request = command(GROUPED_MAP_ARROW_ITER, first_only, limits=exchange_pb2.Limits(max_records_per_batch=1))
    assert await results(zygotes, ROW_SCHEMA, request, batches) == [(1, 1, 10), (2, 1, 20), (3, 1, 30), (4, 1, 40)]


def count_both_tables(key, left, right):
    return pa.table({"key": [key[0].as_py()], "rows": [left.num_rows], "sum": [right.num_rows]})


def count_both_frames(key, left, right):
    return pd.DataFrame({"key": [key[0]], "rows": [len(left)], "sum": [len(right)]})


@pytest.mark.parametrize(
    ("eval_type", "function"), [(COGROUPED_MAP_ARROW, count_both_tables), (COGROUPED_MAP_PANDAS, count_both_frames)]
)
async def test_cogroups_pair_both_inputs(zygotes: Zygotes, eval_type: int, function: Any) -> None:
    request = command(eval_type, function, TWO_INPUTS, second_input_schema=SCHEMA.serialize().to_pybytes())
    batches: Batches = [
        (rows((1, 1), (2, 1), (2, 2)), (1, 3, 3), 0),
        (rows((1, 1), (3, 1)), (1, 1, 2), 1),
        (rows((4, 1)), (), 0),
        (rows((4, 2)), (1,), 0),
        (rows((4, 1)), (1,), 1),
    ]
    expected = [(1, 1, 1), (2, 2, 0), (3, 0, 1), (4, 2, 1)]
    assert await results(zygotes, SCHEMA, request, batches) == expected


async def test_results_of_small_groups_share_replies(zygotes: Zygotes) -> None:
    groups = 5000
    batch = pa.RecordBatch.from_pydict({"key": range(groups), "value": range(groups)}, schema=SCHEMA)
    batches: Batches = [(rows_struct(batch), range(1, groups + 1), 0)]
    reply = await run(zygotes, ROW_SCHEMA, command(GROUPED_MAP_ARROW, summary_table), batches)
    assert reply.table.num_rows == groups
    assert len(reply.batches) == 2


async def test_an_aggregate_answers_each_request_with_a_row_for_each_end(zygotes: Zygotes) -> None:
    request = session_command(GROUPED_AGG_ARROW, udf(lambda column: pc.sum(column), LongType()))
    batches: Batches = [(batch, ends, 0) for batch, ends in zip(batches_of([4, 2, 2]), ENDS, strict=True)]
    reply = await run(zygotes, batches[0][0].schema, request, batches)
    answered = [(sequence, batch.column(0).to_pylist()) for sequence, batch in reply.batches]
    assert answered == [(1, [0, 3]), (2, []), (3, [18, 7])]


async def test_a_window_answers_each_request_row_for_row(zygotes: Zygotes) -> None:
    window = udf(lambda column: pc.sum(column), LongType())
    bounds = {"window_bound_types": "unbounded"}
    request = session_command(WINDOW_AGG_ARROW, window, eval_conf=bounds, runner_conf={**RUNNER_CONF, **bounds})
    batches: Batches = [(batch, ends, 0) for batch, ends in zip(batches_of([4, 2, 2]), ENDS, strict=True)]
    reply = await run(zygotes, batches[0][0].schema, request, batches)
    answered = [(sequence, batch.column(0).to_pylist()) for sequence, batch in reply.batches]
    assert answered == [(1, [0, 3, 3, 18]), (2, [18, 18]), (3, [18, 7])]


FLAT = rows((1, 1), (2, 2))
BATCH = rows_struct(FLAT)


@pytest.mark.parametrize(
    ("batches", "problem"),
    [
        ([(BATCH, (2, 1), 0)], "the group ends of batch 1 are not offsets up to its 2 rows in order"),
        ([(BATCH, (1, 3), 0)], "the group ends of batch 1 are not offsets up to its 2 rows in order"),
        ([(BATCH, (2**32 - 1,), 0)], "the group ends of batch 1 are not offsets up to its 2 rows in order"),
        ([(BATCH, (2,), 1)], "batch 1 is of input 1, but the function has inputs 0 to 0"),
        ([(BATCH, (1,), 0)], "the input ended inside a group"),
        ([(BATCH, (2,), 0), (BATCH, (), 0)], "the input ended inside a group"),
    ],
)
async def test_groups_that_make_no_sense_are_protocol_errors(zygotes: Zygotes, batches: Batches, problem: str) -> None:
    reply = await run(zygotes, ROW_SCHEMA, command(GROUPED_MAP_ARROW, summary_table), batches)
    assert (reply.error.kind, problem in reply.error.message) == (exchange_pb2.ERROR_KIND_PROTOCOL, True), reply.error


@pytest.mark.parametrize(
    ("batches", "problem"),
    [
        ([(FLAT, (1, 2), 0)], "the input ended inside a group or before the right side of one"),
        ([(FLAT, (1,), 0), (FLAT, (2,), 1)], "a right batch came inside a left group"),
        ([(FLAT, (2,), 0), (FLAT, (1, 2), 1)], "a right group has no left group before it"),
        ([(FLAT, (1, 2), 0), (FLAT, (2,), 1), (FLAT, (2,), 0)], "a left batch came before the right groups"),
        ([(FLAT, (2,), 2)], "batch 1 is of input 2, but the function has inputs 0 to 1"),
    ],
)
async def test_cogroups_out_of_order_are_protocol_errors(zygotes: Zygotes, batches: Batches, problem: str) -> None:
    second = SCHEMA.serialize().to_pybytes()
    request = command(COGROUPED_MAP_ARROW, count_both_tables, TWO_INPUTS, second_input_schema=second)
    reply = await run(zygotes, SCHEMA, request, batches)
    assert (reply.error.kind, problem in reply.error.message) == (exchange_pb2.ERROR_KIND_PROTOCOL, True), reply.error


@pytest.mark.parametrize("schema", [b"", b"no schema", rows().serialize().to_pybytes()])
async def test_cogroups_need_a_schema_of_their_second_input(zygotes: Zygotes, schema: bytes) -> None:
    request = command(COGROUPED_MAP_ARROW, count_both_tables, TWO_INPUTS, second_input_schema=schema)
    reply = await run(zygotes, ROW_SCHEMA, request, [(BATCH, (2,), 0)])
    assert reply.error.kind == exchange_pb2.ERROR_KIND_PROTOCOL
    assert "second_input_schema" in reply.error.message


async def test_a_function_without_groups_refuses_them(zygotes: Zygotes) -> None:
    batch = batches_of([3])[0]
    reply = await run(zygotes, batch.schema, scalar_arrow(lambda x: x), [(batch, (3,), 0)])
    assert reply.error.kind == exchange_pb2.ERROR_KIND_PROTOCOL
    assert "batch 1 has group ends, but the function takes no groups" in reply.error.message


async def test_a_worker_serves_ungrouped_functions_after_grouped_ones(zygotes: Zygotes) -> None:
    async with running_pool(zygotes) as pool:
        before = pool.workers[0].worker
        frames = grouped_requests([(BATCH, (1, 2), 0)])
        grouped = await raw_exchange(pool, ROW_SCHEMA, frames, command(GROUPED_MAP_ARROW, summary_table))
        scalar = await exchange(pool, batches_of([3]), scalar_arrow(lambda x: x))
        assert (grouped.error, scalar.error, pool.workers[0].worker) == (None, None, before)
