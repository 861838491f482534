# SPDX-License-Identifier: Apache-2.0
"""Connector's own client against a pool: groups, cogroups, artifacts and table functions."""

from __future__ import annotations

import base64
import hashlib
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyspark
import pytest
from pyspark import SparkFiles, cloudpickle
from pyspark.sql.types import DataType, LongType, StringType, StructType

from tests.support.java import run_java
from tests.support.kinds_of_spark import needs_spark
from tests.support.paths import connector_jar
from tests.support.pool import LocalPool
from updraft.protocol import PROTOCOL_VERSION
from updraft.v1 import exchange_pb2

_SOURCE = Path(__file__).parent / "java/SessionClient.java"
_SPARK_JARS = Path(pyspark.__file__).parent / "jars/*"
_SCALAR_ARROW, _GROUPED_AGG_ARROW, _COGROUPED_MAP_ARROW, _ARROW_TABLE = 250, 252, 210, 301
_SINCE = {_SCALAR_ARROW: (4, 1), _GROUPED_AGG_ARROW: (4, 1), _COGROUPED_MAP_ARROW: (4, 0)}
_PAIR = StructType().add("left", LongType()).add("right", LongType())

# A pool has no copy of this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Batch(NamedTuple):
    """Request batch, and the groups that end in it."""

    values: Sequence[int]
    ends: Sequence[int] = ()
    input: int = 0


def _command(
    eval_type: int, artifacts: Sequence[exchange_pb2.Artifact] = (), **fields: Any
) -> exchange_pb2.ExchangeCommand:
    needs_spark(_SINCE.get(eval_type, (0, 0)), f"functions of eval type {eval_type}")
    session = exchange_pb2.SessionFunction(
        python_version=".".join(platform.python_version_tuple()[:2]),
        spark_version=pyspark.__version__,
        eval_type=eval_type,
        artifacts=artifacts,
    )
    payload = exchange_pb2.SessionPayload(runner_conf={"spark.sql.session.timeZone": "UTC"}, **fields)
    return exchange_pb2.ExchangeCommand(
        protocol_version=PROTOCOL_VERSION, session=session, payload=payload.SerializeToString()
    )


def _udf(function: Any, return_type: DataType, arguments: Sequence[int] = (0,)) -> exchange_pb2.Udf:
    offsets = [exchange_pb2.Argument(offset=offset) for offset in arguments]
    return exchange_pb2.Udf(arguments=offsets, commands=[cloudpickle.dumps((function, return_type))])


def _stream(values: Sequence[int]) -> str:
    batch = pa.RecordBatch.from_pydict({"_0": pa.array(values, pa.int64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue()).decode()


def _replies(
    pool: LocalPool, command: exchange_pb2.ExchangeCommand, batches: Iterable[Batch], artifacts: Iterable[Path] = ()
) -> list[tuple[list[int], list[Any]]]:
    """Return the row ends and values of each reply."""
    lines = [f"command {base64.b64encode(command.SerializeToString()).decode()}"]
    lines += [f"artifact {hashlib.sha256(path.read_bytes()).hexdigest()} {path}" for path in artifacts]
    lines += [f"batch {b.input} {','.join(map(str, b.ends))} {_stream(b.values)}" for b in batches]
    class_path = f"{connector_jar()}:{_SPARK_JARS}"
    answer = run_java(class_path, _SOURCE, pool.tcp_endpoint, text="\n".join(lines) + "\n")
    return [_reply(*line.split(" ")) for line in answer.splitlines()]


def _reply(ends: str, stream: str) -> tuple[list[int], list[Any]]:
    table = pa.ipc.open_stream(base64.b64decode(stream)).read_all()
    return [int(end) for end in ends.split(",") if end], table.column(0).to_pylist()


def _sum(values: pa.Array) -> Any:
    return pc.sum(values)


def test_a_group_that_spans_batches_is_answered_where_it_ends(pool: LocalPool) -> None:
    command = _command(_GROUPED_AGG_ARROW, udfs=[_udf(_sum, LongType())])
    replies = _replies(pool, command, [Batch([1, 2, 4], [2]), Batch([8]), Batch([16, 32], [1, 2])])
    assert [values for _, values in replies] == [[3], [], [28, 32]]


def _sums_of_both(left: pa.Table, right: pa.Table) -> pa.Table:
    sums = [pc.sum(side.column(0)).as_py() for side in (left, right)]
    return pa.table({"left": pa.array(sums[:1], pa.int64()), "right": pa.array(sums[1:], pa.int64())})


def test_cogroups_meet_by_their_order_and_a_side_may_be_empty(pool: LocalPool) -> None:
    numbers = (3, 1, 0, 0)  # For each side: number of values that follow, number of keys, key, values.
    command = _command(
        _COGROUPED_MAP_ARROW,
        udfs=[_udf(_sums_of_both, _PAIR, (*numbers, *numbers))],
        second_input_schema=pa.schema({"_0": pa.int64()}).serialize().to_pybytes(),
    )
    replies = _replies(pool, command, [Batch([1, 2, 4], [2, 2, 3]), Batch([8, 16], [0, 1, 2], 1)])
    pairs = [(row["left"], row["right"]) for _, values in replies for row in values]
    assert pairs == [(3, None), (None, 8), (4, 16)]


def _with_greeting(values: pa.Array) -> pa.Array:
    greeting = Path(SparkFiles.get("greeting.txt")).read_text()
    return pa.array([f"{greeting} {value}" for value in values.to_pylist()])


@pytest.mark.parametrize("greeting", ["good morning", ""], ids=["some bytes", "no bytes"])
def test_a_file_is_known_by_the_digest_of_its_bytes(pool: LocalPool, tmp_path: Path, greeting: str) -> None:
    path = tmp_path / "greeting.txt"
    path.write_text(greeting)
    artifact = exchange_pb2.Artifact(
        sha256=hashlib.sha256(greeting.encode()).digest(), size_bytes=len(greeting), file_name=path.name
    )
    command = _command(_SCALAR_ARROW, udfs=[_udf(_with_greeting, StringType())], artifacts=[artifact])
    assert _replies(pool, command, [Batch([1])], [path]) == [([], [f"{greeting} 1"])]


class _Repeated:
    """Table function that gives as many rows as its number."""

    def eval(self, number: int) -> Iterator[tuple[int]]:
        for _ in range(number):
            yield (number,)


def test_outputs_of_a_table_function_end_where_their_rows_do(pool: LocalPool) -> None:
    udtf = exchange_pb2.Udtf(
        arguments=[exchange_pb2.Argument(offset=0)],
        command=cloudpickle.dumps(_Repeated),
        return_type=StructType().add("x", LongType()).json(),
        name="repeated",
        joined=True,
    )
    input_type = StructType().add("_0", LongType()).json()
    command = _command(_ARROW_TABLE, udtf=udtf, eval_conf={"input_type": input_type})
    replies = _replies(pool, command, [Batch([2, 0, 1])])
    assert [(ends, [row["x"] for row in values]) for ends, values in replies] == [([2, 2, 3], [2, 2, 1])]
