# SPDX-License-Identifier: Apache-2.0
"""Exchange of one row, which shows the cost of opening and ending an exchange."""

from __future__ import annotations

import time

import grpc
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.types import LongType

from tests.support.flight import Reply, exchange, session_command, whole_request
from tests.support.pool import LocalPool
from updraft.v1.exchange_pb2 import Argument, ExchangeCommand, SessionPayload, Udf

_SCALAR_PANDAS = 200
_ROW = pa.record_batch({"_0": pa.array([1], pa.int64())})
_RUNNER_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName": "true",
    "spark.sql.execution.pandas.convertToArrowArraySafely": "false",
}


def command_of(application: str) -> ExchangeCommand:
    """Return the command of a pandas UDF that returns its argument."""
    pickled = cloudpickle.dumps((lambda series: series, LongType()))
    payload = SessionPayload(
        udfs=[Udf(arguments=[Argument(offset=0)], commands=[pickled], result_id=1)], runner_conf=_RUNNER_CONF
    )
    command = session_command(eval_type=_SCALAR_PANDAS)
    command.payload = payload.SerializeToString()
    command.task.owner.application_id = application
    return command


def schema_of(command: ExchangeCommand) -> bytes:
    """Return the schema header of the exchange's first message."""
    return bytes(whole_request(command, _ROW.schema, [])[0].data_header)


def seconds_of(pool: LocalPool, command: ExchangeCommand) -> float:
    """Return the time that an exchange of one row takes; raise SystemExit if the exchange fails."""
    requests = whole_request(command, _ROW.schema, [_ROW])
    started = time.perf_counter()
    reply: Reply = exchange(pool.tcp_address, requests)
    took_seconds = time.perf_counter() - started
    if reply.code != grpc.StatusCode.OK or [batch.num_rows for batch in reply.batches()] != [1]:
        raise SystemExit(f"an exchange failed: {reply.code}: {reply.details}")
    return took_seconds
