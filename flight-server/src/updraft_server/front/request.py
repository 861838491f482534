# SPDX-License-Identifier: Apache-2.0
"""The first message of an exchange: what it wants, for whom, and whether this pool can do that at all.

Everything that can be refused without a worker is refused here. `updraft_server.front.exchange` goes on from an
`Opening`.
"""

import hashlib
import json
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError

from updraft.errors import ProtocolError, VersionMismatchError
from updraft.flight_data import DescriptorKind, FlightFields, parse_descriptor, split_flight_data
from updraft.protocol import PROTOCOL_VERSION
from updraft.service.log_lines import shortened
from updraft.v1.exchange_pb2 import DeferredFunction, ExchangeCommand, Function, TaskIdentity
from updraft_server.front.artifacts.needs import NO_NEEDS, Needs, parse_needs
from updraft_server.front.capabilities import Capabilities
from updraft_server.front.session_rules import check_session_function, check_session_functions_allowed
from updraft_server.pool.pool import TaskKey

# How session functions are called in metrics: their own names are not ours to know, and would not be bounded.
SESSION_LABEL = "session"


@dataclass(frozen=True, slots=True)
class Opening:
    """A parsed first message.

    `command` is empty for plain Flight, where `function` and `version` name a registered function instead.
    """

    plain: bool
    command: bytes
    schema: bytes
    function: str
    version: str
    task: TaskIdentity
    batch_timeout_milliseconds: int = 0
    idle_timeout_milliseconds: int = 0
    needs: Needs = NO_NEEDS
    binding: str = ""
    """Names what a worker has loaded for good once it has run this; empty when that is nothing of a session's own."""
    resolved: bool = False
    deferred: DeferredFunction | None = None
    """The function to ask for once there is room for the exchange; None: the command has it."""

    @property
    def held_bytes(self) -> int:
        """Memory that the exchange takes while it waits for a worker."""
        return len(self.command) + len(self.schema) + (self.deferred.size_bytes if self.deferred else 0)

    @property
    def task_key(self) -> TaskKey | None:
        """The task whose exchanges may overtake the queue; None for a client that names none."""
        if not self.task.application_id:
            return None
        return TaskKey(self.task.application_id, self.task.stage_id, self.task.task_attempt_id)

    @property
    def log_context(self) -> dict[str, str]:
        """The task's identity, for every log line of the exchange: short, however long a client's own texts are."""
        if not self.task.application_id:
            return {"function": shortened(self.function)}
        return {
            "function": shortened(self.function),
            "application": shortened(self.task.application_id),
            "query": shortened(self.task.query_id),
            "stage": f"{self.task.stage_id}.{self.task.stage_attempt_number}",
            "partition": str(self.task.partition_id),
            "attempt": str(self.task.attempt_number),
        }


def parse_opening(message: bytes) -> Opening:
    """Parse the first message; raises ProtocolError. What it asks for is not checked yet (`resolve`)."""
    fields = split_flight_data(message)
    if not fields.descriptor:
        raise ProtocolError("the first message has no flight descriptor: nothing says what to run")
    descriptor = parse_descriptor(fields.descriptor)
    if descriptor.kind is DescriptorKind.PATH:
        return _plain_opening(descriptor.path, fields)
    if descriptor.kind is DescriptorKind.CMD:
        return _command_opening(bytes(descriptor.command), fields)
    raise ProtocolError("the flight descriptor has no type: expected CMD with an ExchangeCommand or PATH with a name")


def resolve(opening: Opening, capabilities: Capabilities) -> Opening:
    """The opening with the function that will run; raises UpdraftError for what this pool cannot or will not run."""
    if opening.plain:
        registered = capabilities.find(opening.function, opening.version)
        return replace(opening, version=registered.version, resolved=True)
    command = ExchangeCommand.FromString(opening.command)
    if command.protocol_version != PROTOCOL_VERSION:
        raise VersionMismatchError(
            f"the client speaks version {command.protocol_version} of the protocol, "
            f"this pool version {PROTOCOL_VERSION}"
        )
    if opening.deferred is not None:
        if command.function.WhichOneof("kind") is not None:
            raise ProtocolError("the command has both a function and a deferred function")
        check_session_functions_allowed(capabilities)
        return replace(opening, resolved=True)
    match command.function.WhichOneof("kind"):
        case "registered":
            registered = capabilities.find(opening.function, opening.version)
            return replace(opening, version=registered.version, resolved=True)
        case "session":
            function = command.function.session
            check_session_function(function, capabilities)
            needs = parse_needs(function)
            return replace(opening, needs=needs, binding=_binding(command, needs), resolved=True)
        case _:
            raise ProtocolError("the command names no function")


def with_function(opening: Opening, function: bytes) -> Opening:
    """The opening with its deferred function, still to be resolved; raises ProtocolError."""
    command = ExchangeCommand.FromString(opening.command)
    command.ClearField("deferred_function")
    try:
        command.function.CopyFrom(Function.FromString(function))
    except DecodeError as error:
        raise ProtocolError(f"the deferred function is not a Function: {error}") from None
    if not command.function.HasField("session"):
        raise ProtocolError("the deferred function is not a session function")
    return replace(opening, command=command.SerializeToString(), deferred=None, resolved=False)


def with_schema(opening: Opening, message: bytes) -> Opening:
    """The opening completed by its second message; raises ProtocolError when that has no schema either.

    Flight's own libraries send the descriptor by itself first and again with the schema.
    """
    fields = split_flight_data(message)
    if not fields.data_header:
        raise ProtocolError("neither the first nor the second message has an Arrow schema")
    return replace(opening, schema=bytes(fields.data_header))


def _plain_opening(path: tuple[str, ...], fields: FlightFields) -> Opening:
    if len(path) not in (1, 2):
        raise ProtocolError(f"the path has {len(path)} parts: expected a function's name, or its name and version")
    return Opening(
        plain=True,
        command=b"",
        schema=bytes(fields.data_header),
        function=path[0],
        version=path[1] if len(path) == 2 else "",
        task=TaskIdentity(),
    )


def _command_opening(encoded: bytes, fields: FlightFields) -> Opening:
    try:
        command = ExchangeCommand.FromString(encoded)
    except DecodeError as error:
        raise ProtocolError(f"the command of the flight descriptor is not an ExchangeCommand: {error}") from None
    function = command.function
    is_deferred = command.HasField("deferred_function")
    is_session = is_deferred or function.HasField("session")
    return Opening(
        plain=False,
        command=encoded,
        schema=bytes(fields.data_header),
        function=SESSION_LABEL if is_session else function.registered.name,
        version=function.registered.version,
        task=command.task,
        batch_timeout_milliseconds=command.limits.batch_timeout_milliseconds,
        idle_timeout_milliseconds=command.limits.idle_timeout_milliseconds,
        deferred=command.deferred_function if is_deferred else None,
    )


def _binding(command: ExchangeCommand, needs: Needs) -> str:
    """Modules of a session stay imported, and modules read the environment when they are imported."""
    function = command.function.session
    if not (needs.files or function.user_environment):
        return ""
    parts = [
        command.task.application_id,
        function.environment.get("SPARK_JOB_ARTIFACT_UUID", ""),
        needs.file_set,
        *function.python_includes,
        *(f"{name}={value}" for name, value in sorted(function.user_environment.items())),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
