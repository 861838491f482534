# SPDX-License-Identifier: Apache-2.0
"""Commands with session functions, pickled as PySpark pickles them."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pool_driver import batches_of, exchange
from pyspark import cloudpickle
from pyspark.sql.types import DataType, LongType, StringType

from updraft.protocol import PROTOCOL_VERSION
from updraft.v1 import exchange_pb2
from updraft_server.pool.bindings import Binding
from updraft_server.pool.leases import Owner
from updraft_server.pool.pool import Pool
from updraft_server.worker.pyspark.adapters import minor_version
from updraft_server.worker.pyspark.kinds import kinds_of

BATCHED, ARROW_BATCHED = 100, 101
SCALAR_PANDAS, SCALAR_PANDAS_ITER, MAP_PANDAS_ITER, MAP_ARROW_ITER = 200, 204, 205, 207
SCALAR_ARROW, SCALAR_ARROW_ITER = 250, 251
GROUPED_MAP_PANDAS, COGROUPED_MAP_PANDAS, GROUPED_MAP_ARROW, COGROUPED_MAP_ARROW = 201, 206, 209, 210
GROUPED_MAP_ARROW_ITER, GROUPED_MAP_PANDAS_ITER = 215, 216
GROUPED_AGG_ARROW, WINDOW_AGG_ARROW = 252, 253
TABLE, ARROW_TABLE, ARROW_UDTF = 300, 301, 302

# Some supported PySpark versions lack these kinds.
LATER_KINDS = {
    *(GROUPED_MAP_ARROW, COGROUPED_MAP_ARROW, GROUPED_MAP_ARROW_ITER, GROUPED_MAP_PANDAS_ITER, 217),
    *range(250, 255),
    ARROW_UDTF,
}
PYSPARKS_KINDS = kinds_of(minor_version(pyspark.__version__))

RUNNER_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName": "true",
    "spark.sql.execution.pandas.convertToArrowArraySafely": "false",
}


def udf(
    function: Callable[..., Any], return_type: DataType, offsets: Sequence[int] = (0,), **named: int
) -> exchange_pb2.Udf:
    arguments = [exchange_pb2.Argument(offset=offset) for offset in offsets]
    arguments += [exchange_pb2.Argument(offset=offset, name=name) for name, offset in named.items()]
    return exchange_pb2.Udf(arguments=arguments, commands=[cloudpickle.dumps((function, return_type))], result_id=7)


def session_command(
    eval_type: int,
    udfs: exchange_pb2.Udf | Iterable[exchange_pb2.Udf],
    *,
    environment: dict[str, str] | None = None,
    limits: exchange_pb2.Limits | None = None,
    **changes: Any,
) -> exchange_pb2.ExchangeCommand:
    """Return a command; skip the test if this PySpark does not have the kind."""
    if eval_type in LATER_KINDS - PYSPARKS_KINDS.keys():
        pytest.skip(f"pyspark {pyspark.__version__} has no eval type {eval_type}")
    in_payload = exchange_pb2.SessionPayload.DESCRIPTOR.fields_by_name
    payload = {
        "udfs": [udfs] if isinstance(udfs, exchange_pb2.Udf) else list(udfs),
        "runner_conf": RUNNER_CONF,
        **{name: value for name, value in changes.items() if name in in_payload},
    }
    session = {
        "python_version": f"{sys.version_info.major}.{sys.version_info.minor}",
        "spark_version": pyspark.__version__,
        "eval_type": eval_type,
        "environment": environment or {},
        **{name: value for name, value in changes.items() if name not in in_payload},
    }
    return exchange_pb2.ExchangeCommand(
        protocol_version=PROTOCOL_VERSION,
        session=exchange_pb2.SessionFunction(**session),
        payload=exchange_pb2.SessionPayload(**payload).SerializeToString(),
        task=exchange_pb2.TaskIdentity(
            owner=exchange_pb2.Owner(application_id="app"), stage_id=3, partition_id=5, task_attempt_id=11, cpus=1
        ),
        limits=limits or exchange_pb2.Limits(),
    )


def table_command(
    eval_type: int, handler: type, return_type: DataType, *, joined: bool = True, **options: Any
) -> exchange_pb2.ExchangeCommand:
    table = exchange_pb2.Udtf(
        arguments=[exchange_pb2.Argument(offset=0)],
        command=cloudpickle.dumps(handler),
        return_type=return_type.json(),
        name="handler",
        joined=joined,
    )
    return session_command(eval_type, [], udtf=table, **options)


def scalar_arrow(
    function: Callable[..., Any], return_type: DataType | None = None, **options: Any
) -> exchange_pb2.ExchangeCommand:
    """Return the command of an arrow_udf, which most tests run; PySpark 4.0 has none and runs it over pandas."""
    return_type = return_type or LongType()
    if SCALAR_ARROW in PYSPARKS_KINDS:
        return session_command(SCALAR_ARROW, udf(function, return_type), **options)
    return session_command(SCALAR_PANDAS, udf(_over_series(function), return_type), **options)


def _over_series(function: Callable[..., Any]) -> Callable[..., Any]:
    def over_series(*columns: Any) -> Any:
        return function(*(pa.Array.from_pandas(column) for column in columns)).to_pandas()

    return over_series


async def said(pool: Pool, function: Callable[[], object], *, application: str = "app", tenant: str = "") -> str:
    """Run a function without arguments in a worker as a session function, and return its result as text."""

    def called(x: pa.Array) -> pa.Array:
        return pa.array([str(function())] * len(x))

    command = scalar_arrow(called, StringType())
    command.task.owner.application_id = application
    binding = Binding(Owner(tenant, application, ""))
    reply = await exchange(pool, batches_of([1]), command, tenant=tenant, binding=binding, owner=binding.owner)
    assert reply.error is None, reply.error
    return str(reply.table.column(0)[0])


def rows_struct(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch as the one struct column that the map family takes."""
    return pa.RecordBatch.from_arrays([batch.to_struct_array()], ["_0"])


def pickled_rows(values: Iterable[Iterable[Any]]) -> pa.RecordBatch:
    """Return a request batch of a pickled UDF: one value for each list of rows."""
    import pickle

    column = pa.array([pickle.dumps(list(rows)) for rows in values], pa.binary())
    return pa.RecordBatch.from_arrays([column], ["_0"])
