# SPDX-License-Identifier: Apache-2.0
"""Main loop of a forked worker process: receives a command, serves the exchange, and restores the process state."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from google.protobuf.message import DecodeError

from updraft import errors
from updraft.functions.failures import describe
from updraft.v1 import exchange_pb2
from updraft_server.ipc.assignment import Assignment
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.sandbox.owner_files import OwnerFiles, out_of_reach
from updraft_server.sandbox.scratch import use_own_home
from updraft_server.sandbox.worker_sandbox import restrict
from updraft_server.worker.channel import Channel, ReceivedFrame
from updraft_server.worker.exchange import Exchange, InputState
from updraft_server.worker.model.channel import ModelChannel
from updraft_server.worker.model.client import SuspectError
from updraft_server.worker.process_state import ProcessState
from updraft_server.worker.registered.functions import RegisteredFunctions
from updraft_server.worker.registered.runner import run_registered

if TYPE_CHECKING:
    from updraft_server.worker.pyspark.runner import SessionRunner


class Ownership:
    """Owner of a worker, set by the worker's first exchange.

    The front sends each worker the exchanges of one owner only. If the front makes a mistake, this check keeps an owner
    from seeing data that another owner left in the process.
    """

    def __init__(self) -> None:
        self._owner: tuple[str, ...] = ()
        self.is_lasting = True
        """Whether the worker may serve another exchange.

        False if the client names no application: the worker then cannot tell which other exchanges belong to that
        client.
        """

    def take(self, assignment: Assignment) -> None:
        """Make the exchange's owner the worker's owner; raises InternalError if the worker has another owner."""
        is_registered = bool(assignment.function_name)
        owner = _registered(assignment) if is_registered else tuple(assignment.owner)
        if not is_registered and len(owner) != 3:
            raise errors.InternalError("the front sent a session function without an owner")
        if not self.is_lasting or self._owner not in ((), owner):
            raise errors.InternalError("the front sent an exchange of another owner to a worker that has served one")
        self._owner = owner
        self.is_lasting = is_registered or owner[1] != ""


def _registered(assignment: Assignment) -> tuple[str, ...]:
    """Return the owner for registered functions. A process that has run one must never run session code."""
    return ("registered functions", "restricted") if assignment.restricted else ("registered functions",)


class Ending(NamedTuple):
    """Last frame that the worker sends for an exchange."""

    kind: FrameKind
    app_metadata: bytes = b""


class Worker:
    """Worker that serves one exchange at a time until the front closes the channel."""

    def __init__(
        self,
        channel: Channel,
        settings: WorkerSettings,
        functions: RegisteredFunctions,
        sessions: "SessionRunner | None",
        files: OwnerFiles,
        scratch: Path,
        model_channel: ModelChannel,
    ) -> None:
        self._channel = channel
        self._model_channel = model_channel
        self._settings = settings
        self._functions = functions
        self._sessions = sessions
        self._files = files
        self._scratch = scratch
        self._is_bound = False
        self._exchanges = 0
        self._ownership = Ownership()

    def run(self) -> NoReturn:
        """Serve exchanges until the worker cannot be reused after one, or the front closes the channel."""
        self._channel.send(FrameKind.READY)
        ending = Ending(FrameKind.DONE)
        while ending.kind is FrameKind.DONE:
            ending = self._serve_one()
            self._channel.send(*ending)
        self._channel.discard_until_closed()
        self._channel.leave()

    def _serve_one(self) -> Ending:
        header = self._channel.receive_header()
        received_seconds = time.time()
        exchange = Exchange(self._channel, self._settings)
        try:
            if header.payload_bytes > self._settings.max_command_bytes:
                raise errors.LimitError(
                    f"the command has {header.payload_bytes} bytes, the limit is {self._settings.max_command_bytes}"
                )
            frame = self._channel.receive_fields(header)
            assignment = _assignment(frame)
            self._bind(assignment)
            before = ProcessState()
            exchange.open(assignment, frame)
            exchange.finish(self._run(assignment, frame, exchange, received_seconds))
        except BaseException as error:
            exchange.clock.stop()
            return self._failed(error, exchange)
        self._exchanges += 1
        worn_out = self._exchanges == self._settings.max_exchanges_per_worker or not self._ownership.is_lasting
        worn_out = worn_out or self._model_channel.is_lost or exchange.retires_worker
        reusable = not worn_out and exchange.state is InputState.ENDED and _restored(before)
        return Ending(FrameKind.DONE if reusable else FrameKind.RETIRED)

    def _bind(self, assignment: Assignment) -> None:
        """Permanently drop the rights that this exchange's function must not have; raises PoolUnavailableError."""
        if assignment.function_name:
            if assignment.restricted:
                self._restrict(assignment)
            return
        if not self._is_bound:
            self._confine(assignment)
        if out_of_reach([assignment.files_directory, *assignment.broadcasts.values()]) is not None:
            # The directory was recreated after this worker was confined: Landlock still allows only the old directory.
            raise errors.PoolUnavailableError(
                "the worker can no longer read the artifacts of its session: retry on another one"
            )

    def _restrict(self, assignment: Assignment) -> None:
        if assignment.function_name not in self._settings.restricted_functions:
            # This function's model processes are not restricted, so restricted code must not reach them.
            self._model_channel.close()
        if not self._is_bound:
            try:
                restrict()
            except OSError as error:
                raise errors.PoolUnavailableError(f"the worker cannot be restricted: {error}") from error
            self._is_bound = True

    def _confine(self, assignment: Assignment) -> None:
        # Only registered functions use models. Session functions must not reach them.
        self._model_channel.close()
        try:
            self._files.confine(self._scratch, assignment.artifacts_directory, assignment.named_tenant)
        except OSError as error:
            # A registered function may have left threads, which cannot be confined. A fresh worker has no such threads.
            raise errors.PoolUnavailableError(f"the worker cannot be bound to a session: {error}") from error
        use_own_home(self._scratch, self._settings.writable_paths)
        self._is_bound = True

    def _run(
        self, assignment: Assignment, frame: ReceivedFrame, exchange: Exchange, received_seconds: float
    ) -> exchange_pb2.Report:
        self._ownership.take(assignment)
        if assignment.function_name:
            function = self._functions.find(assignment.function_name, assignment.function_version)
            return run_registered(function, assignment, exchange, self._model_channel, self._settings.max_batch_rows)
        if self._sessions is None:
            raise errors.FunctionRefusedError("this worker has not loaded pyspark and runs registered functions only")
        return self._sessions.run(assignment, _session_payload(frame), exchange, received_seconds)

    def _failed(self, error: BaseException, exchange: Exchange) -> Ending:
        # The exchange's recorded error takes precedence: it caused any error that the function raised afterwards.
        failure = exchange.failure or error
        if not isinstance(failure, errors.UpdraftError):
            failure = errors.InternalError(f"the worker failed: {describe(error)}")
        failure.sequence = exchange.consumed
        kind = FrameKind.CRASHED if isinstance(failure, SuspectError) else FrameKind.FAILED
        return Ending(kind, failure.to_message().SerializeToString())


def _restored(before: ProcessState) -> bool:
    try:
        return before.restore()
    except Exception:
        # The function may have broken anything that `restore` needs, so the pool must replace the worker.
        return False


def _assignment(frame: ReceivedFrame) -> Assignment:
    if frame.kind is not FrameKind.COMMAND:
        raise errors.InternalError(f"the front sent {frame.kind.name} where a command was expected")
    try:
        return Assignment.decode(frame.app_metadata)
    except (ValueError, TypeError) as error:
        raise errors.InternalError(f"the front sent an assignment that cannot be read: {error}") from None


def _session_payload(frame: ReceivedFrame) -> exchange_pb2.SessionPayload:
    try:
        return exchange_pb2.SessionPayload.FromString(bytes(memoryview(frame.data_body)))
    except DecodeError:
        raise errors.ProtocolError("the command's payload is not a SessionPayload") from None
