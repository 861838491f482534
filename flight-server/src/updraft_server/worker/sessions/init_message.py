# SPDX-License-Identifier: Apache-2.0
"""What PySpark's worker reads before its data: the task, its files and broadcasts, the settings, the functions.

The layout is the same in 4.2 and 4.3 (`PythonRunner.writeInitMessage`); 4.3 announces it with a length, which its
adapter adds. Secrets stay in Spark, and of the local properties those that a function has no use for.
"""

import json
import struct
from collections.abc import Mapping
from typing import NamedTuple

from updraft.v1 import exchange_pb2
from updraft_server.worker.sessions.wire import INT, LONG, text, with_length

_BOOL = struct.Struct("!?")
_NOT_ENCRYPTED = _BOOL.pack(False)  # noqa: FBT003


class Surroundings(NamedTuple):
    """What PySpark's worker finds on its disk."""

    files_directory: str
    """The directory of SparkFiles."""
    added_broadcasts: Mapping[int, str]
    """Broadcast variables that it has not seen yet, and where their pickled values are."""
    removed_broadcasts: frozenset[int]
    """Those that it has seen and must forget."""


def compose(task: exchange_pb2.TaskIdentity, function: exchange_pb2.SessionFunction, around: Surroundings) -> bytes:
    """The bytes of the init message for an exchange."""
    return b"".join(
        [
            INT.pack(task.partition_id),
            text(function.python_version),
            text(_task_context(task)),
            text(around.files_directory),
            INT.pack(len(function.python_includes)),
            *map(text, function.python_includes),
            _broadcasts(around),
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
            "localProperties": dict(task.local_properties),
        }
    )


def _broadcasts(around: Surroundings) -> bytes:
    added = b"".join(LONG.pack(number) + text(path) for number, path in around.added_broadcasts.items())
    removed = b"".join(LONG.pack(-number - 1) for number in around.removed_broadcasts)
    count = len(around.added_broadcasts) + len(around.removed_broadcasts)
    return _NOT_ENCRYPTED + INT.pack(count) + removed + added


def _settings(settings: Mapping[str, str]) -> bytes:
    return INT.pack(len(settings)) + b"".join(text(key) + text(value) for key, value in settings.items())


def _udf(udf: exchange_pb2.Udf) -> bytes:
    arguments = b"".join(
        INT.pack(argument.offset) + _BOOL.pack(bool(argument.name)) + (text(argument.name) if argument.name else b"")
        for argument in udf.arguments
    )
    commands = b"".join(map(with_length, udf.commands))
    return INT.pack(len(udf.arguments)) + arguments + INT.pack(len(udf.commands)) + commands + LONG.pack(udf.result_id)
