# SPDX-License-Identifier: Apache-2.0
"""What PySpark's worker reads before its data: the task, the settings and the functions.

The layout is the same in 4.2 and 4.3 (`PythonRunner.writeInitMessage`); 4.3 announces it with a length, which its
adapter adds. Secrets, local properties, broadcasts and files stay in Spark: they mean nothing on another host.
"""

import json
import struct
from collections.abc import Mapping

from updraft.v1 import exchange_pb2
from updraft_server.worker.sessions.wire import INT, LONG, text, with_length

_BOOL = struct.Struct("!?")
_NO_INCLUDES = INT.pack(0)
_NO_BROADCASTS = _BOOL.pack(False) + INT.pack(0)  # noqa: FBT003


def compose(task: exchange_pb2.TaskIdentity, function: exchange_pb2.SessionFunction, files_directory: str) -> bytes:
    """The bytes of the init message for an exchange."""
    return b"".join(
        [
            INT.pack(task.partition_id),
            text(function.python_version),
            text(_task_context(task)),
            text(files_directory),
            _NO_INCLUDES,
            _NO_BROADCASTS,
            INT.pack(function.eval_type),
            _settings(function.runner_conf),
            _settings(function.eval_conf),
            INT.pack(len(function.udfs)),
            *map(_udf, function.udfs),
        ]
    )


def _task_context(task: exchange_pb2.TaskIdentity) -> str:
    cpus = max(task.cpus, 1)
    return json.dumps(
        {
            "isBarrier": False,
            "connInfo": None,
            "secret": None,
            "stageId": task.stage_id,
            "partitionId": task.partition_id,
            "attemptNumber": task.attempt_number,
            "taskAttemptId": task.task_attempt_id,
            "cpus": cpus,
            "cpuAmount": str(cpus),
            "resources": {
                name: {"name": name, "addresses": list(resource.addresses)} for name, resource in task.resources.items()
            },
            "localProperties": {},
        }
    )


def _settings(settings: Mapping[str, str]) -> bytes:
    return INT.pack(len(settings)) + b"".join(text(key) + text(value) for key, value in settings.items())


def _udf(udf: exchange_pb2.Udf) -> bytes:
    arguments = b"".join(
        INT.pack(argument.offset) + _BOOL.pack(bool(argument.name)) + (text(argument.name) if argument.name else b"")
        for argument in udf.arguments
    )
    commands = b"".join(map(with_length, udf.commands))
    return INT.pack(len(udf.arguments)) + arguments + INT.pack(len(udf.commands)) + commands + LONG.pack(udf.result_id)
