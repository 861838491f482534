# SPDX-License-Identifier: Apache-2.0
"""Parser and checks of the command that opens an exchange: what to run, for whom, and whether the pool can run it.

This module refuses every command that can be refused without a worker. A command is parsed once; only the worker parses
its payload. `updraft_server.front.exchange` continues with the `Request`.

The rules for session functions are checked once, before any code of a function reaches a worker.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from updraft.errors import FunctionRefusedError, LimitError, ProtocolError, VersionMismatchError
from updraft.flight_data import DescriptorKind, FlightFields, parse_descriptor
from updraft.protocol import DATABEND_QUERY_HEADER, DATABEND_TENANT_HEADER
from updraft.service.exchange import check_version, parse_message, task_context
from updraft.service.telemetry import shortened
from updraft.v1.control_pb2 import FunctionDescription, FunctionKind
from updraft.v1.exchange_pb2 import (
    AggregateStage,
    DeferredPayload,
    ExchangeCommand,
    RegisteredFunction,
    SessionFunction,
)
from updraft_server.front.artifacts.needs import NO_NEEDS, Needs, parse_needs
from updraft_server.front.request.capabilities import Capabilities
from updraft_server.pool.leases import TaskKey

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
        "SPARK_CONNECT_LOCAL_URL",
        "SPARK_CONNECT_AUTHENTICATE_TOKEN",
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
    if len(function.function_sha256) not in (0, hashlib.sha256().digest_size):
        raise ProtocolError(f"function_sha256 has {len(function.function_sha256)} bytes: expected 32, or none")
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


SERVICE = "pool"

MAX_COMMAND_BYTES = 4 * 1024 * 1024
"""Limit of an encoded command. A payload that makes the command larger has to be deferred."""

# Memory that a parsed envelope uses per encoded byte in the worst case, which is maps and lists of short texts.
_MEMORY_BYTES_PER_ENVELOPE_BYTE = 16

# Name for all session functions in metrics. The front does not know their own names, and could not use them as labels
# because their number is unbounded.
SESSION_LABEL = "session"


@dataclass(frozen=True, slots=True)
class Request:
    """Parsed command. A client of plain Flight only names a registered function; `command` is then empty."""

    function: str
    """Name of a registered function, or SESSION_LABEL."""
    version: str
    """Version of a registered function; empty until `resolve` if the client asked for the newest version."""
    command: ExchangeCommand = field(default_factory=ExchangeCommand)
    """Envelope, without its payload."""
    plain: bool = False
    """Whether the client speaks plain Flight."""
    descriptor: bytes = b""
    """Encoded flight descriptor of a plain client, which may send it again with each message."""
    query: str = ""
    """Query that a plain client names, for logs."""
    databend: bool = False
    """Whether a plain client is Databend."""
    payload: bytes = b""
    """Payload for the worker, which the front does not parse."""
    schema: bytes = b""
    """Arrow header with the schema of the arguments."""
    needs: Needs = NO_NEEDS
    """Artifacts of a session function."""
    modules: str = ""
    """Name that identifies the files and environment with which the worker imports modules; empty if there are none."""
    is_batched: bool = False
    """Whether the function runs in model processes; known once it is resolved."""
    joins_batches: bool = False
    """Whether the function is an aggregate, which may work on several batches at once; known once it is resolved."""
    resolved: bool = False
    """Whether `resolve` has found that this pool runs the function."""

    @property
    def is_session(self) -> bool:
        """Whether a Spark session ships the function."""
        return self.command.HasField("session")

    @property
    def function_sha256(self) -> bytes:
        """Digest that the client states for its session function; empty if the payload identifies the function."""
        return self.command.session.function_sha256

    @property
    def subject(self) -> str:
        """Name of the function in errors; the connector adds the names of a session's functions."""
        return "the session's function" if self.is_session else f"the function {self.function}"

    @property
    def deferred(self) -> DeferredPayload | None:
        """Payload to request once the exchange has a place in the queue; None if the command contains the payload."""
        return self.command.deferred_payload if self.command.HasField("deferred_payload") else None

    @property
    def may_wait(self) -> bool:
        """Whether the exchange may wait for other exchanges."""
        return not (self.command.refuse_if_busy or self.command.is_helper)

    @property
    def may_upload(self) -> bool:
        """Whether the pool may request the function's payload or its artifacts from the client."""
        return self.deferred is not None or self.needs != NO_NEEDS

    @property
    def held_bytes(self) -> int:
        """Memory that the exchange uses while it waits for a worker."""
        deferred_bytes = self.command.deferred_payload.size_bytes
        envelope_bytes = _MEMORY_BYTES_PER_ENVELOPE_BYTE * self.command.ByteSize()
        return envelope_bytes + len(self.payload) + deferred_bytes + len(self.schema)

    @property
    def task_key(self) -> TaskKey | None:
        """Task of this exchange. While the task holds a worker, the exchange may overtake other exchanges in the queue.

        None if the client names no task, and for helpers, which may not overtake.
        """
        task = self.command.task
        if self.command.is_helper or not task.owner.application_id:
            return None
        return TaskKey(task.owner.application_id, task.stage_id, task.task_attempt_id)

    @property
    def log_context(self) -> dict[str, str]:
        """Function and task, for every log line of the exchange."""
        query = {"query": shortened(self.query)} if self.query else {}
        return {"function": shortened(self.function), **query, **task_context(self.command.task)}


def parse_request(first: FlightFields, header: Callable[[str], str] = lambda _: "") -> Request:
    """Parse the first message and the headers of its call; raise ProtocolError or LimitError.

    `resolve` checks what the request asks for.
    """
    descriptor = parse_descriptor(first.descriptor)
    if descriptor.kind is DescriptorKind.PATH:
        name, version = path_parts(descriptor.path)
        encoded = bytes(first.descriptor)
        return Request(
            name,
            version,
            plain=True,
            descriptor=encoded,
            query=header(DATABEND_QUERY_HEADER),
            databend=is_databend(header),
        )
    if descriptor.kind is DescriptorKind.CMD:
        return _command_request(descriptor.command)
    raise ProtocolError("the flight descriptor has no type: expected CMD with an ExchangeCommand or PATH with a name")


def resolve(request: Request, capabilities: Capabilities) -> Request:
    """Return the request with the function that will run; raise UpdraftError if the pool cannot or will not run it."""
    command = request.command
    if request.plain:
        return _with_version(request, capabilities)
    check_version(command.protocol_version, SERVICE)
    _check_numbers(command)
    if request.deferred is not None and request.payload:
        raise ProtocolError("the command has both a payload and a deferred payload")
    match command.WhichOneof("function"):
        case "registered":
            if request.deferred is not None:
                raise ProtocolError("the payload of a registered function cannot be deferred")
            return _with_version(request, capabilities)
        case "session":
            check_session_function(command.session, capabilities)
            needs = parse_needs(command.session)
            return replace(request, needs=needs, modules=_modules(command, needs), resolved=True)
        case _:
            raise ProtocolError("the command names no function")


def is_databend(header: Callable[[str], str]) -> bool:
    """Return whether a client of plain Flight is Databend's engine, which sends these headers with each call."""
    return bool(header(DATABEND_QUERY_HEADER) or header(DATABEND_TENANT_HEADER))


def path_parts(path: Sequence[str]) -> tuple[str, str]:
    """Return the name and version in a path, with an empty version if it has none; raise ProtocolError."""
    if len(path) not in (1, 2):
        raise ProtocolError(f"the path has {len(path)} parts: expected a function's name, or its name and version")
    return path[0], path[1] if len(path) == 2 else ""


def _command_request(encoded: memoryview) -> Request:
    if len(encoded) > MAX_COMMAND_BYTES:
        raise LimitError(
            f"the command has {len(encoded)} bytes, the limit of this pool is {MAX_COMMAND_BYTES}: defer its payload"
        )
    command = parse_message(ExchangeCommand, encoded, "the command of the flight descriptor is not an ExchangeCommand")
    payload = command.payload
    command.ClearField("payload")
    return Request(
        function=SESSION_LABEL if command.HasField("session") else command.registered.name,
        version=command.registered.version,
        command=command,
        payload=payload,
    )


def _with_version(request: Request, capabilities: Capabilities) -> Request:
    registered = capabilities.callable(request.function, request.version)
    _check_call(request.command.registered, registered)
    return replace(
        request,
        function=registered.name,
        version=registered.version,
        is_batched=registered.batched,
        joins_batches=registered.kind == FunctionKind.FUNCTION_KIND_AGGREGATE,
        resolved=True,
    )


def _check_call(call: RegisteredFunction, function: FunctionDescription) -> None:
    """Raise ProtocolError if the client's call does not fit the kind of the function."""
    is_aggregate = function.kind == FunctionKind.FUNCTION_KIND_AGGREGATE
    if call.stage not in AggregateStage.values():
        raise ProtocolError(f"unknown aggregate stage {call.stage}")
    if (call.stage or call.key_columns or call.filtered) and not is_aggregate:
        raise ProtocolError(f"function {function.name!r} is not an aggregate: it has no stages and no groups")
    if call.filtered and call.stage == AggregateStage.AGGREGATE_STAGE_MERGE:
        raise ProtocolError(f"states of function {function.name!r} cannot be filtered: filter the rows")
    if call.joined and function.kind != FunctionKind.FUNCTION_KIND_TABLE:
        raise ProtocolError(f"function {function.name!r} does not give a table: nothing can be joined to its rows")


def _check_numbers(command: ExchangeCommand) -> None:
    """Raise ProtocolError for a negative limit or size, which would reduce the memory counted for other exchanges."""
    for limit, value in command.limits.ListFields():
        if value < 0:
            raise ProtocolError(f"{limit.name} is {value} in the limits of the command: expected 0 or more")
    if command.deferred_payload.size_bytes < 0:
        raise ProtocolError(f"the function has {command.deferred_payload.size_bytes} bytes")


def _modules(command: ExchangeCommand, needs: Needs) -> str:
    """Return a name that identifies the files and environment of a session's modules; empty if there are none.

    A worker keeps modules imported, and modules read the environment during their import. So a worker that has imported
    modules under one name serves only exchanges with the same name.
    """
    function = command.session
    if not (needs.files or function.user_environment):
        return ""
    parts = [
        needs.file_set,
        *function.python_includes,
        *(f"{name}={value}" for name, value in sorted(function.user_environment.items())),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
