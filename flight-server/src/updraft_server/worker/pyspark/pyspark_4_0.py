# SPDX-License-Identifier: Apache-2.0
"""How the worker of PySpark 4.0 is called: `main`, with the init message in front of the data."""

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
_NO_PORT_NO_SECRET = INT.pack(0) + text("")


def compose(task: exchange_pb2.TaskIdentity, function: SessionFunction, around: Surroundings) -> bytes:
    """The bytes of the init message for an exchange."""
    not_a_barrier = NO
    return b"".join(
        [
            task_header(task),
            not_a_barrier,
            _NO_PORT_NO_SECRET,
            task_context(task),
            contents(function, around),
            INT.pack(function.eval_type),
            arrow_settings(function, _window_bounds(function)),
            profiled_functions(function),
        ]
    )


def _window_bounds(function: SessionFunction) -> dict[str, str]:
    bounds = function.payload.runner_conf.get("window_bound_types")
    return {} if bounds is None else {"pandas_window_bound_types": bounds}
