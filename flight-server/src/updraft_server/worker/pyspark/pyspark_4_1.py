# SPDX-License-Identifier: Apache-2.0
"""How the worker of PySpark 4.1 is called: `main`, with the init message in front of the data."""

from updraft.v1 import exchange_pb2
from updraft_server.worker.pyspark.init_message import NO, Surroundings, contents, task_header
from updraft_server.worker.pyspark.init_message_before_4_2 import (
    arrow_settings,
    profiled_functions,
    task_context,
)
from updraft_server.worker.pyspark.pyspark_4_2 import invoke
from updraft_server.worker.pyspark.session_function import SessionFunction
from updraft_server.worker.pyspark.trailer import TIMINGS_BEFORE_4_2
from updraft_server.worker.pyspark.wire import INT, text

__all__ = ["TIMINGS", "compose", "invoke"]

TIMINGS = TIMINGS_BEFORE_4_2


def compose(task: exchange_pb2.TaskIdentity, function: SessionFunction, around: Surroundings) -> bytes:
    """The bytes of the init message for an exchange."""
    not_a_barrier = NO
    return b"".join(
        [
            task_header(task),
            not_a_barrier,
            task_context(task),
            contents(function, around),
            INT.pack(function.eval_type),
            arrow_settings(function, {}),
            _eval_conf(function),
            profiled_functions(function),
        ]
    )


def _eval_conf(function: SessionFunction) -> bytes:
    if "input_type" in function.payload.eval_conf:
        return text(function.payload.eval_conf["input_type"])
    if "table_arg_offsets" in function.payload.eval_conf:
        offsets = [int(offset) for offset in function.payload.eval_conf["table_arg_offsets"].split(",") if offset]
        return INT.pack(len(offsets)) + b"".join(map(INT.pack, offsets))
    return b""
