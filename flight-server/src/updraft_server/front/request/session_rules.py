# SPDX-License-Identifier: Apache-2.0
"""Rules for session functions. They are checked once, before any code of a function reaches a worker."""

import re

from updraft.errors import FunctionRefusedError, ProtocolError, VersionMismatchError
from updraft.v1.exchange_pb2 import SessionFunction
from updraft_server.front.request.capabilities import Capabilities

# Environment variables that a command may set for its exchange: those that PySpark's worker reads.
SESSION_ENVIRONMENT = frozenset(
    {
        "SPARK_HIDE_TRACEBACK",
        "SPARK_SIMPLIFIED_TRACEBACK",
        "SPARK_TRACEBACK_WITH_LOCALS",
        "PYTHON_UDF_BATCH_SIZE",
        "TZ",
        "PYSPARK_SPARK_SESSION_UUID",
        "SPARK_JOB_ARTIFACT_UUID",
        "OMP_NUM_THREADS",
        "PYTHON_TRACEBACK_DUMP_INTERVAL_SECONDS",
    }
)

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Users may not set variables that control the dynamic loader, the interpreter or the pool itself.
_RESERVED_VARIABLES = frozenset({"PATH", "IFS", "ENV", "BASH_ENV", "GCONV_PATH", "NLSPATH", "VIRTUAL_ENV"})
_RESERVED_PREFIXES = ("LD_", "DYLD_", "PYTHON", "PYSPARK_", "SPARK_", "UPDRAFT_", "MALLOC_", "GLIBC_", "BASH_FUNC_")


def check_session_function(function: SessionFunction, capabilities: Capabilities) -> None:
    """Raise FunctionRefusedError, VersionMismatchError or ProtocolError for a function that this pool does not run."""
    if not capabilities.session_functions_allowed:
        raise FunctionRefusedError(
            "this pool runs registered functions only: start it with --session-functions unsigned or signed "
            "to run what Spark sessions ship"
        )
    if not capabilities.pyspark_version:
        raise FunctionRefusedError("this pool has no pyspark, so it cannot run what a Spark session ships")
    _check_minor("Python", function.python_version, capabilities.python_version)
    _check_minor("pyspark", function.spark_version, capabilities.pyspark_version)
    refused = sorted(set(function.environment) - SESSION_ENVIRONMENT)
    refused += sorted(name for name in function.user_environment if not _is_user_variable(name))
    if refused:
        raise FunctionRefusedError(f"environment variables that an exchange may not set: {', '.join(refused)}")
    for name, value in (*function.environment.items(), *function.user_environment.items()):
        if "\0" in value:
            raise ProtocolError(f"the value of the environment variable {name} has a null byte")


def _is_user_variable(name: str) -> bool:
    """Return whether a user may set the environment variable for a function."""
    return (
        _VARIABLE.fullmatch(name) is not None
        and name not in _RESERVED_VARIABLES
        and not name.startswith(_RESERVED_PREFIXES)
    )


def _check_minor(what: str, client: str, pool: str) -> None:
    if _minor(client) != _minor(pool):
        raise VersionMismatchError(
            f"the function needs {what} {client or 'of an unnamed version'}, this pool has {what} {pool}: "
            f"their major.minor must be equal; use a pool with {what} {_minor(client)}"
        )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
