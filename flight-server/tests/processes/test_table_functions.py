# SPDX-License-Identifier: Apache-2.0
"""Table functions through real workers and PySpark's own code, and commands that do not fit them."""

import pickle
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pool_driver import Reply, Zygotes, batches_of, exchange, numbers, running_pool
from pyspark import cloudpickle
from pyspark.sql import functions
from pyspark.sql.types import LongType, StructField, StructType
from session_commands import (
    ARROW_TABLE,
    ARROW_UDTF,
    SCALAR_PANDAS,
    TABLE,
    pickled_rows,
    scalar_arrow,
    session_command,
    table_command,
)

from updraft.v1 import exchange_pb2
from updraft_server.ipc.frames import FrameKind
from updraft_server.worker.pyspark.adapters import minor_version

# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

RESULT = StructType([StructField("x", LongType())])
INPUT = {"input_type": '{"type":"struct","fields":[{"name":"_0","type":"long","nullable":true,"metadata":{}}]}'}


class Repeat:
    def eval(self, number: int) -> Iterator[tuple[int]]:
        for _ in range(number):
            yield (number,)

    def terminate(self) -> Iterator[tuple[int]]:
        yield (-1,)


class SkipAll:
    def eval(self, number: int) -> Iterator[tuple[int]]:
        raise functions.SkipRestOfInputTableException("enough")


class Same:
    def eval(self, column: pa.Array) -> Iterator[pa.Table]:
        yield pa.table({"x": column})


async def run(zygotes: Zygotes, command: Any, batches: list[pa.RecordBatch]) -> Reply:
    async with running_pool(zygotes) as pool:
        return await exchange(pool, batches, command)


def structs(batch: pa.RecordBatch) -> list[int]:
    return [row["x"] for row in batch.column(0).to_pylist()]


async def test_the_outputs_of_a_request_share_a_reply_that_says_where_each_ends(zygotes: Zygotes) -> None:
    command = table_command(ARROW_TABLE, Repeat, RESULT, eval_conf=INPUT)
    reply = await run(zygotes, command, batches_of([3, 1]))
    assert [structs(batch) for _, batch in reply.batches] == [[1, 2, 2], [3, 3, 3], [-1]]
    assert reply.row_ends == [[0, 1, 3], [3], [1]]
    assert reply.ending is FrameKind.DONE


async def test_a_client_that_joins_nothing_gets_no_ends(zygotes: Zygotes) -> None:
    command = table_command(ARROW_UDTF, Same, RESULT, joined=False, eval_conf={"table_arg_offsets": ""})
    reply = await run(zygotes, command, batches_of([3, 2]))
    assert [structs(batch) for _, batch in reply.batches] == [[0, 1, 2], [3, 4]]
    assert reply.row_ends == [[], []]


async def test_pickled_outputs_are_values_of_one_column(zygotes: Zygotes) -> None:
    command = table_command(TABLE, Repeat, RESULT)
    reply = await run(zygotes, command, [pickled_rows([[(2,), (0,)]]), pickled_rows([[(1,)]])])
    outputs = [pickle.loads(value) for _, batch in reply.batches for value in batch.column(0).to_pylist()]
    assert outputs == [[((2,), (2,))], [()], [((1,),)], [((-1,),)]]
    assert reply.row_ends == [[1, 2], [1], [1]]


@pytest.mark.skipif(not hasattr(functions, "SkipRestOfInputTableException"), reason="Spark 3.5 has no such exception")
@pytest.mark.parametrize("eval_type", [TABLE, ARROW_TABLE])
async def test_a_function_that_skips_its_input_finishes_before_the_client(zygotes: Zygotes, eval_type: int) -> None:
    # Spark sends the input conf only to Arrow functions, and PySpark before 4.2 does not read it for the others.
    command = table_command(eval_type, SkipAll, RESULT, eval_conf=INPUT if eval_type == ARROW_TABLE else {})
    batches = [pickled_rows([[(1,)]])] * 3 if eval_type == TABLE else batches_of([1, 1, 1])
    reply = await run(zygotes, command, batches)
    assert (reply.error, reply.finish.batches) == (None, 0)
    # Data that the client still sends must not reach the next exchange.
    assert reply.ending is FrameKind.RETIRED


MISFITS = {
    "no_udtf": (session_command(TABLE, []), "table functions need udtf"),
    "udtf_of_a_udf": (table_command(SCALAR_PANDAS, Repeat, RESULT), "table functions need udtf"),
    "numbers_for_pickles": (table_command(TABLE, Repeat, RESULT), "pickled UDFs take one binary column"),
}


@pytest.mark.parametrize("misfit", MISFITS)
async def test_a_command_that_does_not_fit_is_a_protocol_error(zygotes: Zygotes, misfit: str) -> None:
    command, problem = MISFITS[misfit]
    reply = await run(zygotes, command, [numbers(2)])
    assert (reply.error.kind, problem in reply.error.message) == (exchange_pb2.ERROR_KIND_PROTOCOL, True), reply.error


HOSTILE: dict[str, dict[str, Any]] = {
    "no_class": {"command": b"not a pickle"},
    "no_type": {"return_type": "{"},
    "an_argument_that_is_not_there": {"arguments": [exchange_pb2.Argument(offset=9)]},
    "a_negative_argument": {"arguments": [exchange_pb2.Argument(offset=-9)]},
    "a_broken_analyze_result": {"analyze_result": b"not a pickle"},
    "a_partition_that_is_not_there": {"partition_child_indexes": [5]},
}


# Spark 3.5 has neither of them.
_SINCE_4_0 = ("a_broken_analyze_result", "a_partition_that_is_not_there")


@pytest.mark.parametrize("change", HOSTILE)
async def test_a_hostile_table_function_fails_alone(zygotes: Zygotes, change: str) -> None:
    if change in _SINCE_4_0 and minor_version(pyspark.__version__) < (4, 0):
        pytest.skip("this PySpark does not read it")
    command = table_command(ARROW_TABLE, Repeat, RESULT, eval_conf=INPUT)
    payload = exchange_pb2.SessionPayload.FromString(command.payload)
    changed = exchange_pb2.Udtf(**HOSTILE[change])
    if changed.arguments:
        del payload.udtf.arguments[:]
    payload.udtf.MergeFrom(changed)
    command.payload = payload.SerializeToString()
    reply = await run(zygotes, command, batches_of([3]))
    assert reply.error.kind == exchange_pb2.ERROR_KIND_USER, reply.error
    assert (await run(zygotes, scalar_arrow(lambda x: x), batches_of([3]))).error is None


async def test_a_pickled_input_with_nulls_is_a_protocol_error(zygotes: Zygotes) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([None], pa.binary())], ["_0"])
    reply = await run(zygotes, table_command(TABLE, Repeat, RESULT), [batch])
    assert reply.error.kind == exchange_pb2.ERROR_KIND_PROTOCOL
