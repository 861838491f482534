# SPDX-License-Identifier: Apache-2.0
"""How the worker of PySpark 4.1 is called: `main`, with the init message in front of the data."""

from updraft.v1 import exchange_pb2
from updraft_server.worker.sessions.init_message import NO, Surroundings, contents, task_header
from updraft_server.worker.sessions.init_message_before_4_2 import (
    arrow_settings,
    profiled_functions,
    task_context,
)
from updraft_server.worker.sessions.pyspark_4_2 import invoke
from updraft_server.worker.sessions.trailer import TIMINGS_BEFORE_4_2
from updraft_server.worker.sessions.wire import INT, text

__all__ = ["TIMINGS", "compose", "invoke"]

TIMINGS = TIMINGS_BEFORE_4_2


def compose(task: exchange_pb2.TaskIdentity, function: exchange_pb2.SessionFunction, around: Surroundings) -> bytes:
    """The bytes of the init message for an exchange."""
    not_a_barrier = NO
    return b"".join(
        [
            task_header(task, function),
            not_a_barrier,
            task_context(task),
            contents(function, around),
            INT.pack(function.eval_type),
            arrow_settings(function, {}),
            _input_type(function),
            profiled_functions(function),
        ]
    )


def _input_type(function: exchange_pb2.SessionFunction) -> bytes:
    input_type = function.eval_conf.get("input_type")
    return b"" if input_type is None else text(input_type)
