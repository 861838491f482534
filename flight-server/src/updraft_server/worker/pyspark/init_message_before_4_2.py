# SPDX-License-Identifier: Apache-2.0
"""Init message of PySpark 3.5, 4.0 and 4.1. The module `init_message` has the parts that all versions share.

Differences from 4.2: The task is a sequence of numbers instead of JSON. Only functions over Arrow batches have
settings. The profiler is not among the settings: 4.0 and 4.1 read its name before the functions. Of 4.2's eval conf,
4.1 reads one value after the settings, and older versions read nothing. In 3.5, arguments have no names, and a table
function has neither partitions nor a result of `analyze`.
"""

from collections.abc import Mapping

from pyspark.rdd import PythonEvalType

from updraft.v1 import exchange_pb2
from updraft_server.ipc.assignment import Assignment
from updraft_server.worker.pyspark import init_message as newer
from updraft_server.worker.pyspark.kinds import ReplyForm, kinds_of
from updraft_server.worker.pyspark.wire import INT, LONG, text, with_length

PROFILER = "spark.sql.pyspark.udf.profiler"

_NO_PORT_NO_SECRET = INT.pack(0) + text("")
_KINDS = kinds_of((4, 1))


def compose_3_5(assignment: Assignment, payload: exchange_pb2.SessionPayload, around: newer.Surroundings) -> bytes:
    """Return the bytes of the init message for an exchange with 3.5."""
    functions = (
        _plain_table_function(payload.udtf)
        if payload.HasField("udtf")
        else newer.functions(payload.udfs, argument_names=False, result_ids=False)
    )
    conf = _settings_with_bounds(assignment.eval_type, payload)
    return _compose(assignment, around, connection=_NO_PORT_NO_SECRET, conf=conf, functions=functions)


def compose_4_0(assignment: Assignment, payload: exchange_pb2.SessionPayload, around: newer.Surroundings) -> bytes:
    """Return the bytes of the init message for an exchange with 4.0."""
    functions = _profiled_functions(assignment.eval_type, payload)
    conf = _settings_with_bounds(assignment.eval_type, payload)
    return _compose(assignment, around, connection=_NO_PORT_NO_SECRET, conf=conf, functions=functions)


def compose_4_1(assignment: Assignment, payload: exchange_pb2.SessionPayload, around: newer.Surroundings) -> bytes:
    """Return the bytes of the init message for an exchange with 4.1."""
    functions = _profiled_functions(assignment.eval_type, payload)
    conf = _arrow_settings(assignment.eval_type, payload, {}) + _eval_conf(payload.eval_conf)
    return _compose(assignment, around, connection=b"", conf=conf, functions=functions)


def _compose(
    assignment: Assignment, around: newer.Surroundings, *, connection: bytes, conf: bytes, functions: bytes
) -> bytes:
    not_a_barrier = newer.NO
    return b"".join(
        [
            newer.task_header(assignment.task),
            not_a_barrier,
            connection,
            _task_context(assignment.task),
            newer.artifacts(assignment, around),
            INT.pack(assignment.eval_type),
            conf,
            functions,
        ]
    )


def _task_context(task: exchange_pb2.TaskIdentity) -> bytes:
    """Return the task and its local properties."""
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
            newer.settings(task.local_properties),
        ]
    )


def _settings_with_bounds(eval_type: int, payload: exchange_pb2.SessionPayload) -> bytes:
    """Return the settings. Before 4.1, they include the bounds of window frames, under another key."""
    bounds = payload.runner_conf.get("window_bound_types")
    return _arrow_settings(eval_type, payload, {} if bounds is None else {"pandas_window_bound_types": bounds})


def _arrow_settings(eval_type: int, payload: exchange_pb2.SessionPayload, eval_conf: Mapping[str, str]) -> bytes:
    """Return the settings of a function over Arrow batches; empty for a function over pickled rows."""
    if eval_type in (PythonEvalType.SQL_BATCHED_UDF, PythonEvalType.SQL_TABLE_UDF):
        return b""
    runner_conf = {key: value for key, value in payload.runner_conf.items() if key != PROFILER}
    return newer.settings({**runner_conf, **eval_conf})


def _eval_conf(eval_conf: Mapping[str, str]) -> bytes:
    """Return the part of the eval conf that 4.1 reads: text or a list of numbers, by the kind of function."""
    if "input_type" in eval_conf:
        return text(eval_conf["input_type"])
    if "table_arg_offsets" in eval_conf:
        offsets = [int(offset) for offset in eval_conf["table_arg_offsets"].split(",") if offset]
        return INT.pack(len(offsets)) + b"".join(map(INT.pack, offsets))
    return b""


def _profiled_functions(eval_type: int, payload: exchange_pb2.SessionPayload) -> bytes:
    """Return the profiler, if any, and the UDFs; a table function has no profiler."""
    if payload.HasField("udtf"):
        return newer.table_function(payload.udtf)
    profiler = payload.runner_conf.get(PROFILER)
    named = newer.BOOL.pack(profiler is not None) + (text(profiler) if profiler else b"")
    # Functions with ReplyForm.FREELY take whole rows, so their arguments have no name flags.
    has_names = _KINDS[eval_type].answers is not ReplyForm.FREELY
    return named + newer.functions(payload.udfs, argument_names=has_names, result_ids=profiler is not None)


def _plain_table_function(udtf: exchange_pb2.Udtf) -> bytes:
    """Return a table function of 3.5: its arguments, class and return type."""
    offsets = b"".join(INT.pack(argument.offset) for argument in udtf.arguments)
    return INT.pack(len(udtf.arguments)) + offsets + with_length(udtf.command) + text(udtf.return_type)
