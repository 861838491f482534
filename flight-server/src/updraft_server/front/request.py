# SPDX-License-Identifier: Apache-2.0
"""The command that opens an exchange: what it wants, for whom, and whether this pool can do that at all.

Everything that can be refused without a worker is refused here. A command is parsed once;
`updraft_server.front.exchange` goes on from the `Request`.
"""

import hashlib
import json
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError

from updraft.errors import ProtocolError
from updraft.flight_data import DescriptorKind, FlightFields, parse_descriptor
from updraft.service.log_lines import shortened
from updraft.service.opening import check_version, task_context
from updraft.v1.exchange_pb2 import DeferredFunction, ExchangeCommand, Function, TaskIdentity
from updraft_server.front.artifacts.needs import NO_NEEDS, Needs, parse_needs
from updraft_server.front.capabilities import Capabilities
from updraft_server.front.session_rules import check_session_function, check_session_functions_allowed
from updraft_server.pool.pool import TaskKey

SERVICE = "pool"

# How session functions are called in metrics: their own names are not ours to know, and would not be bounded.
SESSION_LABEL = "session"


@dataclass(frozen=True, slots=True)
class Request:
    """A parsed command; `plain` where the client speaks plain Flight, which names a registered function alone."""

    function: str
    """The name of a registered function, or SESSION_LABEL."""
    version: str
    """Of a registered function; empty until resolved where the client asked for the newest."""
    command: ExchangeCommand | None = None
    """None for plain Flight."""
    encoded: bytes = b""
    """The command as a worker gets it."""
    schema: bytes = b""
    """Arrow's header of the schema of the arguments."""
    needs: Needs = NO_NEEDS
    """The artifacts of a session function."""
    binding: str = ""
    """Names what a worker has loaded for good once it has run this; empty when that is nothing of a session's own."""
    resolved: bool = False
    """Whether `resolve` has found that this pool runs it."""

    @property
    def plain(self) -> bool:
        """Whether the client speaks plain Flight."""
        return self.command is None

    @property
    def task(self) -> TaskIdentity:
        """Whose work it is; empty for plain Flight."""
        return TaskIdentity() if self.command is None else self.command.task

    @property
    def deferred(self) -> DeferredFunction | None:
        """The function to ask for once there is room for the exchange; None: the command has it."""
        if self.command is None or not self.command.HasField("deferred_function"):
            return None
        return self.command.deferred_function

    @property
    def timeouts_milliseconds(self) -> tuple[int, int]:
        """What the client allows for one batch, and for being idle; zero is no limit."""
        if self.command is None:
            return 0, 0
        return self.command.limits.batch_timeout_milliseconds, self.command.limits.idle_timeout_milliseconds

    @property
    def held_bytes(self) -> int:
        """Memory that the exchange takes while it waits for a worker."""
        return len(self.encoded) + len(self.schema) + (self.deferred.size_bytes if self.deferred else 0)

    @property
    def task_key(self) -> TaskKey | None:
        """The task whose exchanges may overtake the queue; None for a client that names none."""
        if not self.task.application_id:
            return None
        return TaskKey(self.task.application_id, self.task.stage_id, self.task.task_attempt_id)

    @property
    def log_context(self) -> dict[str, str]:
        """The function and the task, for every log line of the exchange."""
        return {"function": shortened(self.function), **task_context(self.task)}


def parse_request(first: FlightFields) -> Request:
    """The request of the first message; raises ProtocolError. What it asks for is not checked yet (`resolve`)."""
    descriptor = parse_descriptor(first.descriptor)
    if descriptor.kind is DescriptorKind.PATH:
        return _plain_request(descriptor.path)
    if descriptor.kind is DescriptorKind.CMD:
        return _command_request(bytes(descriptor.command))
    raise ProtocolError("the flight descriptor has no type: expected CMD with an ExchangeCommand or PATH with a name")


def resolve(request: Request, capabilities: Capabilities) -> Request:
    """The request with the function that will run; raises UpdraftError for what this pool cannot or will not run."""
    command = request.command
    if command is None:
        return _with_version(request, capabilities)
    check_version(command.protocol_version, SERVICE)
    kind = command.function.WhichOneof("kind")
    if request.deferred is not None:
        if kind is not None:
            raise ProtocolError("the command has both a function and a deferred function")
        check_session_functions_allowed(capabilities)
        return replace(request, resolved=True)
    match kind:
        case "registered":
            return _with_version(request, capabilities)
        case "session":
            check_session_function(command.function.session, capabilities)
            needs = parse_needs(command.function.session)
            return replace(request, needs=needs, binding=_binding(command, needs), resolved=True)
        case _:
            raise ProtocolError("the command names no function")


def with_function(request: Request, encoded: bytes) -> Request:
    """The request with its deferred function, still to be resolved; raises ProtocolError."""
    try:
        function = Function.FromString(encoded)
    except DecodeError as error:
        raise ProtocolError(f"the deferred function is not a Function: {error}") from None
    if not function.HasField("session"):
        raise ProtocolError("the deferred function is not a session function")
    command = ExchangeCommand()
    if request.command is not None:
        command.CopyFrom(request.command)
    command.ClearField("deferred_function")
    command.function.CopyFrom(function)
    return replace(request, command=command, encoded=command.SerializeToString(), resolved=False)


def _plain_request(path: tuple[str, ...]) -> Request:
    if len(path) not in (1, 2):
        raise ProtocolError(f"the path has {len(path)} parts: expected a function's name, or its name and version")
    return Request(function=path[0], version=path[1] if len(path) == 2 else "")


def _command_request(encoded: bytes) -> Request:
    try:
        command = ExchangeCommand.FromString(encoded)
    except DecodeError as error:
        raise ProtocolError(f"the command of the flight descriptor is not an ExchangeCommand: {error}") from None
    registered = command.function.registered
    is_session = command.HasField("deferred_function") or command.function.HasField("session")
    return Request(
        function=SESSION_LABEL if is_session else registered.name,
        version=registered.version,
        command=command,
        encoded=encoded,
    )


def _with_version(request: Request, capabilities: Capabilities) -> Request:
    registered = capabilities.find(request.function, request.version)
    return replace(request, version=registered.version, resolved=True)


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
