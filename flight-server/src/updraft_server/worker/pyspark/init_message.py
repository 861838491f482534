# SPDX-License-Identifier: Apache-2.0
"""Init message that PySpark's worker reads before its data: task, files, broadcasts, settings and functions.

`compose` writes the layout of 4.2 and 4.3 (`PythonRunner.writeInitMessage`). The other functions write parts that all
versions share. The message contains no secrets, and no local properties that functions do not need. Broadcast variables
work as in Spark's own workers: the worker unpickles a value on first use, and keeps the value for later tasks of the
same application that use the variable. The id of a variable is valid within one application only.
"""

import json
import struct
import sys
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from updraft.v1 import exchange_pb2
from updraft_server.ipc.assignment import Assignment
from updraft_server.worker.pyspark.wire import INT, LONG, text, with_length


class BroadcastChanges(NamedTuple):
    """Changes to the broadcast variables, for PySpark's worker."""

    added: Mapping[int, str]
    """Path of each new variable's pickled value, by id."""
    removed: frozenset[int]


class KnownBroadcasts:
    """Broadcast variables of the last exchange."""

    def __init__(self) -> None:
        self._application_id = ""
        self._paths: Mapping[int, str] = {}

    @property
    def ids(self) -> Set[int]:
        """Ids of the variables that PySpark's worker may keep."""
        return self._paths.keys()

    def change_to(self, application_id: str, paths: Mapping[int, str]) -> BroadcastChanges:
        """Switch to the variables of an exchange and return the changes. A new application starts without variables."""
        known = self._paths if application_id and application_id == self._application_id else {}
        added = {number: path for number, path in paths.items() if known.get(number) != path}
        removed = frozenset(self._paths.keys() - (paths.keys() - added.keys()))
        self._application_id, self._paths = application_id, dict(paths)
        return BroadcastChanges(added, removed)


BOOL = struct.Struct("!?")
NO = BOOL.pack(False)  # noqa: FBT003


class Surroundings(NamedTuple):
    """Files on disk that PySpark's worker uses."""

    files_directory: str
    """Directory of SparkFiles."""
    broadcasts: BroadcastChanges
    """Variables that the worker has not seen yet, and variables that it must forget."""


def compose(assignment: Assignment, payload: exchange_pb2.SessionPayload, around: Surroundings) -> bytes:
    """Return the bytes of the init message for an exchange."""
    return b"".join(
        [
            task_header(assignment.task),
            text(_task_context(assignment.task)),
            artifacts(assignment, around),
            INT.pack(assignment.eval_type),
            settings(payload.runner_conf),
            settings(payload.eval_conf),
            table_function(payload.udtf)
            if payload.HasField("udtf")
            else functions(payload.udfs, argument_names=True, result_ids=True),
        ]
    )


def task_header(task: exchange_pb2.TaskIdentity) -> bytes:
    """Return the task's partition and this Python's version. The front has checked that the functions match it."""
    return INT.pack(task.partition_id) + text(f"{sys.version_info.major}.{sys.version_info.minor}")


def artifacts(assignment: Assignment, around: Surroundings) -> bytes:
    """Return the directory of the files, the names of files to import from, and the broadcasts."""
    includes = b"".join(map(text, assignment.python_includes))
    included = INT.pack(len(assignment.python_includes)) + includes
    return text(around.files_directory) + included + _broadcasts(around.broadcasts)


def settings(values: Mapping[str, str]) -> bytes:
    """Return the number of settings, then each key and value."""
    return INT.pack(len(values)) + b"".join(text(key) + text(value) for key, value in values.items())


def functions(udfs: Iterable[exchange_pb2.Udf], *, argument_names: bool, result_ids: bool) -> bytes:
    """Return the number of UDFs, then the arguments, commands and result id of each UDF.

    With `argument_names`, a flag after each argument's offset states whether the argument's name follows.
    """
    written = [
        _arguments(udf, names=argument_names)
        + INT.pack(len(udf.commands))
        + b"".join(map(with_length, udf.commands))
        + (LONG.pack(udf.result_id) if result_ids else b"")
        for udf in udfs
    ]
    return INT.pack(len(written)) + b"".join(written)


def table_function(udtf: exchange_pb2.Udtf) -> bytes:
    """Return a table function: its named arguments, partitioning, analysis result, class, return type and name."""
    indexes = b"".join(map(INT.pack, udtf.partition_child_indexes))
    analyzed = udtf.HasField("analyze_result")
    return b"".join(
        [
            _arguments(udtf, names=True),
            INT.pack(len(udtf.partition_child_indexes)) + indexes,
            BOOL.pack(analyzed) + (with_length(udtf.analyze_result) if analyzed else b""),
            with_length(udtf.command),
            text(udtf.return_type),
            text(udtf.name),
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


def _broadcasts(changes: BroadcastChanges) -> bytes:
    added = b"".join(LONG.pack(number) + text(path) for number, path in changes.added.items())
    removed = b"".join(LONG.pack(-number - 1) for number in changes.removed)
    count = len(changes.added) + len(changes.removed)
    not_encrypted = NO
    return not_encrypted + INT.pack(count) + removed + added


def _arguments(udf: exchange_pb2.Udf | exchange_pb2.Udtf, *, names: bool) -> bytes:
    offsets = [INT.pack(argument.offset) + (_name(argument.name) if names else b"") for argument in udf.arguments]
    return INT.pack(len(offsets)) + b"".join(offsets)


def _name(name: str) -> bytes:
    return BOOL.pack(bool(name)) + (text(name) if name else b"")
