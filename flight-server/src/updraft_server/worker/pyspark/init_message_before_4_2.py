# SPDX-License-Identifier: Apache-2.0
"""What PySpark's worker reads before its data in 4.0 and 4.1, where the two agree; `init_message` has the rest.

The task is a sequence of numbers and not yet JSON. What 4.2 keeps in the eval conf is among the settings, the settings
are only there for Arrow's kinds, and the profiler is not among them.
"""

from collections.abc import Mapping

from updraft.v1 import exchange_pb2
from updraft_server.worker.pyspark.init_message import BOOL, functions, settings, table_function
from updraft_server.worker.pyspark.kinds import KINDS, Answers, EvalType
from updraft_server.worker.pyspark.session_function import SessionFunction
from updraft_server.worker.pyspark.wire import INT, LONG, text

PROFILER = "spark.sql.pyspark.udf.profiler"


def task_context(task: exchange_pb2.TaskIdentity) -> bytes:
    """The task and its local properties."""
    resources = [
        text(name) + text(name) + INT.pack(len(resource.addresses)) + b"".join(map(text, resource.addresses))
        for name, resource in task.resources.items()
    ]
    return b"".join(
        [
            INT.pack(task.stage_id),
            INT.pack(task.partition_id),
            INT.pack(task.attempt_number),
            LONG.pack(task.task_attempt_id),
            INT.pack(max(task.cpus, 1)),
            INT.pack(len(resources)),
            *resources,
            settings(task.local_properties),
        ]
    )


def arrow_settings(function: SessionFunction, eval_conf: Mapping[str, str]) -> bytes:
    """The settings of a function over Arrow batches; none of a pickled one."""
    if function.eval_type in (EvalType.BATCHED, EvalType.TABLE):
        return b""
    runner_conf = {key: value for key, value in function.payload.runner_conf.items() if key != PROFILER}
    return settings({**runner_conf, **eval_conf})


def profiled_functions(function: SessionFunction) -> bytes:
    """The profiler, if there is one, and the UDFs; a table function has none."""
    if function.payload.HasField("udtf"):
        return table_function(function.payload.udtf)
    profiler = function.payload.runner_conf.get(PROFILER)
    named = BOOL.pack(profiler is not None) + (text(profiler) if profiler else b"")
    # Functions that answer as they like take rows: their arguments have no names to flag.
    has_names = KINDS[EvalType(function.eval_type)].answers is not Answers.FREELY
    return named + functions(function.payload.udfs, argument_names=has_names, result_ids=profiler is not None)
