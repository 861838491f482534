# SPDX-License-Identifier: Apache-2.0
"""Every kind of session function gives PySpark's results, through real workers."""

import pickle
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pool_driver import Reply, Zygotes, batches_of, exchange, numbers, running_pool
from pyspark import cloudpickle
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType
from session_commands import (
    ARROW_BATCHED,
    BATCHED,
    MAP_ARROW_ITER,
    MAP_PANDAS_ITER,
    SCALAR_ARROW_ITER,
    SCALAR_PANDAS,
    SCALAR_PANDAS_ITER,
    pickled_rows,
    rows_struct,
    scalar_arrow,
    session_command,
    udf,
)

from updraft.v1 import exchange_pb2
from updraft_server.ipc.frames import FrameKind

ARROW_UDF_INPUT = '{"type":"struct","fields":[{"name":"_0","type":"long","nullable":true,"metadata":{}}]}'


async def run(zygotes: Zygotes, command: exchange_pb2.ExchangeCommand, batches: list[pa.RecordBatch]) -> Reply:
    async with running_pool(zygotes) as pool:
        reply = await exchange(pool, batches, command)
    assert reply.error is None, reply.error
    return reply


def values(reply: Reply, column: int = 0) -> list[Any]:
    return list(reply.table.column(column).to_pylist())


async def test_an_arrow_udf_answers_each_batch(zygotes: Zygotes) -> None:
    reply = await run(zygotes, scalar_arrow(lambda x: pc.add(x, 1)), batches_of([3, 2]))
    assert [(sequence, batch.num_rows) for sequence, batch in reply.batches] == [(1, 3), (2, 2)]
    assert values(reply) == [1, 2, 3, 4, 5]
    assert reply.ending is FrameKind.DONE


async def test_several_udfs_share_one_exchange(zygotes: Zygotes) -> None:
    udfs = [udf(lambda x: pc.add(x, 1), LongType()), udf(lambda x: pc.multiply(x, 2), LongType())]
    reply = await run(zygotes, session_command(250, udfs), batches_of([3]))
    assert (values(reply, 0), values(reply, 1)) == ([1, 2, 3], [0, 2, 4])


TWO_COLUMNS = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([3, 4])], ["_0", "_1"])


async def test_arguments_are_taken_by_position_and_by_name(zygotes: Zygotes) -> None:
    named = udf(lambda left, right: pc.subtract(left, right), LongType(), offsets=(1,), right=0)
    assert values(await run(zygotes, session_command(250, named), [TWO_COLUMNS])) == [2, 2]


async def test_chained_udfs_feed_each_other(zygotes: Zygotes) -> None:
    chained = udf(lambda left, right: pc.add(left, right), LongType(), offsets=(0, 1))
    chained.commands.append(cloudpickle.dumps((lambda x: pc.multiply(x, 10), LongType())))
    assert values(await run(zygotes, session_command(250, chained), [TWO_COLUMNS])) == [40, 60]


async def test_a_pandas_udf_coerces_as_spark_does(zygotes: Zygotes) -> None:
    command = session_command(SCALAR_PANDAS, udf(lambda s: s / 2, DoubleType()))
    reply = await run(zygotes, command, batches_of([4]))
    assert values(reply) == [0.0, 0.5, 1.0, 1.5]


@pytest.mark.parametrize("eval_type", [SCALAR_ARROW_ITER, SCALAR_PANDAS_ITER])
async def test_iterator_udfs_see_all_batches_of_the_exchange(zygotes: Zygotes, eval_type: int) -> None:
    def running_count(batches):
        seen = 0
        for batch in batches:
            seen += 1
            yield batch if eval_type == SCALAR_PANDAS_ITER else pc.add(batch, 0)
        assert seen == 3

    reply = await run(zygotes, session_command(eval_type, udf(running_count, LongType())), batches_of([2, 3, 4]))
    assert [batch.num_rows for _, batch in reply.batches] == [2, 3, 4]
    assert values(reply) == list(range(9))


async def test_an_iterator_udf_that_reads_ahead_still_gets_one_reply_a_request(zygotes: Zygotes) -> None:
    def all_at_once(batches):
        yield pa.concat_arrays(list(batches))

    reply = await run(zygotes, session_command(SCALAR_ARROW_ITER, udf(all_at_once, LongType())), batches_of([2, 3, 4]))
    assert [(sequence, batch.num_rows) for sequence, batch in reply.batches] == [(1, 2), (2, 3), (3, 4)]
    # The first credit means that the function has started, the second that it wants more than the first batch.
    assert reply.credits == [1, 1, 2, 3]
    assert values(reply) == list(range(9))


async def test_an_iterator_udf_may_yield_smaller_batches(zygotes: Zygotes) -> None:
    def row_by_row(batches):
        for batch in batches:
            for index in range(len(batch)):
                yield batch.slice(index, 1)

    reply = await run(zygotes, session_command(SCALAR_ARROW_ITER, udf(row_by_row, LongType())), batches_of([2, 3]))
    assert [(sequence, batch.num_rows) for sequence, batch in reply.batches] == [(1, 2), (2, 3)]


async def test_map_in_arrow_replies_as_it_likes(zygotes: Zygotes) -> None:
    def twice(batches):
        for batch in batches:
            yield batch
            yield batch

    schema = StructType([StructField("_0", LongType())])
    command = session_command(MAP_ARROW_ITER, udf(twice, schema))
    reply = await run(zygotes, command, [rows_struct(batch) for batch in batches_of([2, 1])])
    assert [sequence for sequence, _ in reply.batches] == [1, 2, 3, 4]
    assert [row["_0"] for row in values(reply)] == [0, 1, 0, 1, 2, 2]


async def test_map_in_pandas_filters_rows(zygotes: Zygotes) -> None:
    def odd(frames):
        for frame in frames:
            yield frame[frame["_0"] % 2 == 1]

    command = session_command(MAP_PANDAS_ITER, udf(odd, StructType([StructField("_0", LongType())])))
    reply = await run(zygotes, command, [rows_struct(batch) for batch in batches_of([4, 4])])
    assert [row["_0"] for row in values(reply)] == [1, 3, 5, 7]


async def test_a_map_that_stops_early_succeeds_and_retires_its_worker(zygotes: Zygotes) -> None:
    def first(batches):
        yield next(batches)

    command = session_command(MAP_ARROW_ITER, udf(first, StructType([StructField("_0", LongType())])))
    reply = await run(zygotes, command, [rows_struct(batch) for batch in batches_of([2, 2, 2])])
    assert reply.finish.rows == 2
    assert reply.ending is FrameKind.RETIRED


async def test_a_pickled_udf_answers_each_pickled_list(zygotes: Zygotes) -> None:
    requests = [pickled_rows([[(1,), (2,)], [(3,), (4,)]]), pickled_rows([[(5,)]])]
    command = session_command(
        BATCHED, udf(lambda x: f"<{x}>", StringType()), environment={"PYTHON_UDF_BATCH_SIZE": "2"}
    )
    reply = await run(zygotes, command, requests)
    assert [(sequence, batch.num_rows) for sequence, batch in reply.batches] == [(1, 2), (2, 1)]
    results = [result for value in values(reply) for result in pickle.loads(value)]
    assert results == ["<1>", "<2>", "<3>", "<4>", "<5>"]


async def test_pickled_lists_have_any_length_and_requests_any_number_of_lists(zygotes: Zygotes) -> None:
    """Result lists are as long as the lists of rows, and a request without lists gets a reply too."""
    lists = [[[(1,)], [(2,), (3,), (4,)]], [], [[(5,), (6,)]], []]
    command = session_command(BATCHED, udf(lambda x: x * 2, LongType()), environment={"PYTHON_UDF_BATCH_SIZE": "2"})
    reply = await run(zygotes, command, [pickled_rows(request) for request in lists])
    assert [(sequence, batch.num_rows) for sequence, batch in reply.batches] == [(1, 2), (2, 0), (3, 1), (4, 0)]
    assert [pickle.loads(value) for value in values(reply)] == [[2], [4, 6, 8], [10, 12]]


async def test_an_arrow_optimised_udf_works_row_by_row(zygotes: Zygotes) -> None:
    command = session_command(
        ARROW_BATCHED, udf(lambda x: x * 3, LongType()), eval_conf={"input_type": ARROW_UDF_INPUT}
    )
    reply = await run(zygotes, command, batches_of([3]))
    assert values(reply) == [0, 3, 6]


@pytest.mark.parametrize("eval_type", [250, SCALAR_ARROW_ITER, SCALAR_PANDAS])
async def test_large_requests_are_sliced_for_the_function_and_joined_for_the_client(
    zygotes: Zygotes, eval_type: int
) -> None:
    def checked(x):
        if hasattr(x, "__next__"):
            return (checked(part) for part in x)
        assert len(x) <= 10
        return x

    limits = exchange_pb2.Limits(max_records_per_batch=10)
    command = session_command(eval_type, udf(checked, LongType()), limits=limits)
    reply = await run(zygotes, command, batches_of([25, 10, 3]))
    assert [(sequence, batch.num_rows) for sequence, batch in reply.batches] == [(1, 25), (2, 10), (3, 3)]
    assert values(reply) == list(range(38))


async def test_large_results_of_a_map_are_split(zygotes: Zygotes) -> None:
    command = session_command(
        MAP_ARROW_ITER,
        udf(lambda batches: batches, StructType([StructField("_0", LongType())])),
        limits=exchange_pb2.Limits(max_reply_batch_bytes=4096),
    )
    reply = await run(zygotes, command, [rows_struct(numbers(2000))])
    assert len(reply.batches) > 3
    assert all(batch.nbytes <= 4096 for _, batch in reply.batches)
    assert [row["_0"] for row in values(reply)] == list(range(2000))


@pytest.mark.parametrize("eval_type", [250, SCALAR_PANDAS_ITER, MAP_ARROW_ITER])
async def test_an_empty_partition_gives_a_finish_and_no_schema(zygotes: Zygotes, eval_type: int) -> None:
    command = session_command(eval_type, udf(lambda x: x, LongType()))
    async with running_pool(zygotes) as pool:
        reply = await exchange(pool, [], command, schema=numbers(0).schema)
    assert reply.error is None
    assert (reply.schema, reply.batches) == (None, [])
    assert (reply.finish.batches, reply.finish.rows) == (0, 0)


async def test_the_task_is_visible_to_the_function_without_any_secret(zygotes: Zygotes) -> None:
    def describe(x):
        from pyspark import TaskContext

        task = TaskContext.get()
        text = f"{task.stageId()} {task.partitionId()} {task.taskAttemptId()} {task._localProperties}"
        return pa.array([text] * len(x))

    reply = await run(zygotes, scalar_arrow(describe, StringType()), batches_of([1]))
    assert values(reply) == ["3 5 11 {}"]


async def test_accumulators_and_timings_travel_in_the_report(zygotes: Zygotes) -> None:
    def counting(x):
        from pyspark.accumulators import AddingAccumulatorParam, _deserialize_accumulator

        _deserialize_accumulator(9, 0, AddingAccumulatorParam(0)).add(len(x))
        return x

    reply = await run(zygotes, scalar_arrow(counting), batches_of([4, 5]))
    report = reply.finish.report
    assert [pickle.loads(update) for update in report.accumulator_updates] == [(9, 9)]
    assert report.total_milliseconds >= report.init_milliseconds >= 0
    assert report.boot_milliseconds >= 0
