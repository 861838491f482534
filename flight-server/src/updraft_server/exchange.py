# SPDX-License-Identifier: Apache-2.0
"""One exchange: opened, admitted, relayed between the client's call and a worker's socket, ended.

Bytes pass through unread; the worker (`updraft_server.worker`) knows what they mean. What is decided here is who waits
for whom, and what a failure on either side means for the other: whatever happens, the worker goes back exactly once.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

import structlog
from google.protobuf.message import DecodeError

from updraft.errors import (
    DeadlineError,
    InternalError,
    LimitError,
    ProtocolError,
    UpdraftError,
    WorkerError,
    error_from_message,
)
from updraft.flight_data import join_flight_data, split_flight_data
from updraft.v1.exchange_pb2 import Error, ReplyMetadata, RequestMetadata
from updraft_server.admission import Admission, Grant
from updraft_server.assignment import Assignment
from updraft_server.frame_stream import FrameReceiver, FrameSender, FrameTooLargeError, PeerClosedError
from updraft_server.frames import FrameError, FrameKind
from updraft_server.metrics import FrontMetrics, Transfer
from updraft_server.opening import Offer, Opening, parse_opening, resolve, with_schema
from updraft_server.pool import Lease, LeaseOutcome, WorkerDeath

TENANT_HEADER = "x-updraft-tenant"
TRACE_HEADER = "traceparent"

# How long a client that reads nothing can hold back its own error message.
_LAST_MESSAGE_TIMEOUT_SECONDS = 5.0
# How long after a worker's socket has closed its exit status may take to arrive.
_EXIT_STATUS_TIMEOUT_SECONDS = 2.0

# How long the cancellation of a call may arrive after the end of its stream.
_CANCELLATION_NOTICE_SECONDS = 0.2

_log = structlog.get_logger(__name__)


class Call(Protocol):
    """The client's side of an exchange (`updraft.flight_service.Call`)."""

    async def read(self) -> bytes | None:
        """The next message, or None once the client has half-closed."""

    async def write(self, message: bytes) -> None:
        """Send a message, held back by flow control."""

    def header(self, name: str) -> str:
        """A request header, empty when absent."""

    @property
    def remaining_seconds(self) -> float | None:
        """Time until the client's deadline."""


@dataclass(frozen=True, slots=True)
class ExchangeLimits:
    """What no exchange may exceed."""

    max_message_bytes: int
    first_message_timeout_seconds: float
    default_deadline_seconds: float
    max_deadline_seconds: float


class Exchanges:
    """Serves exchanges, each in the task of its call."""

    def __init__(
        self, admission: Admission, offer: Callable[[], Offer], limits: ExchangeLimits, metrics: FrontMetrics
    ) -> None:
        self._admission = admission
        self._offer = offer
        self._limits = limits
        self._metrics = metrics

    async def serve(self, call: Call) -> None:
        """Serve one exchange; raises UpdraftError after telling the client in-band, where its protocol has that."""
        started = time.monotonic()
        opening: Opening | None = None
        outcome = "cancelled"
        try:
            opening = parse_opening(await self._first_message(call))
            opening = resolve(opening, self._offer())
            structlog.contextvars.bind_contextvars(**opening.log_context)
            if not opening.schema:
                opening = with_schema(opening, await self._first_message(call))
            await self._run(call, opening)
            outcome = "ok"
        except UpdraftError as error:
            outcome = type(error).__name__
            if opening is not None and not opening.plain:
                await _send_error(call, error)
            raise
        finally:
            self._record(opening, outcome, time.monotonic() - started)

    async def _first_message(self, call: Call) -> bytes:
        timeout_seconds = self._limits.first_message_timeout_seconds
        try:
            async with asyncio.timeout(timeout_seconds):
                message = await call.read()
        except TimeoutError:
            raise ProtocolError(f"no schema within {timeout_seconds:g} seconds of the call's start") from None
        if message is None:
            raise ProtocolError("the exchange ended before its schema")
        _check_size(message, self._limits.max_message_bytes)
        return message

    async def _run(self, call: Call, opening: Opening) -> None:
        deadline_seconds = self._deadline_seconds(call)
        try:
            async with asyncio.timeout(deadline_seconds):
                grant = await self._admit(call, opening)
                await self._with_worker(call, opening, grant)
        except TimeoutError:
            raise DeadlineError(f"the exchange was not finished within {deadline_seconds:g} seconds") from None

    def _deadline_seconds(self, call: Call) -> float:
        remaining = call.remaining_seconds
        wanted = self._limits.default_deadline_seconds if remaining is None else remaining
        return min(wanted, self._limits.max_deadline_seconds)

    async def _admit(self, call: Call, opening: Opening) -> Grant:
        tenant = call.header(TENANT_HEADER) or opening.task.application_id
        with self._metrics.wait_seconds.time():
            return await self._admission.acquire(tenant, opening.task_key)

    async def _with_worker(self, call: Call, opening: Opening, grant: Grant) -> None:
        grant.lease.log_context.update(opening.log_context)
        relay = Relay(call, grant.lease, self._limits.max_message_bytes, self._metrics.transfer)
        outcome = LeaseOutcome.BROKEN
        self._metrics.running.inc()
        try:
            outcome = await relay.run(opening, _assignment(call, opening))
        except asyncio.CancelledError:
            outcome = LeaseOutcome.CANCELLED
            raise
        except WorkerError:
            self._metrics.worker_deaths.inc()
            raise
        finally:
            self._metrics.running.dec()
            grant.release(outcome)
            await relay.settle()

    def _record(self, opening: Opening | None, outcome: str, seconds: float) -> None:
        # A name that was asked for but does not exist must not become a series.
        function = opening.function if opening is not None and opening.resolved else ""
        self._metrics.exchanges.labels(function, outcome).inc()
        self._metrics.exchange_seconds.labels(function).observe(seconds)
        _log.info("exchange ended", outcome=outcome, seconds=round(seconds, 4))


class Relay:
    """Carries messages between one call and one worker until the worker ends the exchange."""

    def __init__(self, call: Call, lease: Lease, max_message_bytes: int, transfer: Transfer) -> None:
        self._call = call
        self._lease = lease
        self._max_message_bytes = max_message_bytes
        self._transfer = transfer
        self._sender = FrameSender(lease.socket)
        self._receiver = FrameReceiver(lease.socket, max_payload_bytes=max_message_bytes)
        self._input_ended = False
        self._replies: asyncio.Task[LeaseOutcome] | None = None
        self._writing = False
        self._settling = False

    async def run(self, opening: Opening, assignment: Assignment) -> LeaseOutcome:
        """Relay until the worker says that it is done; raises UpdraftError."""
        on_death = _death_notice(self._receiver)
        self._lease.death.add_done_callback(on_death)
        requests = asyncio.create_task(self._relay_requests(opening, assignment))
        self._replies = replies = asyncio.create_task(self._relay_replies())
        try:
            await asyncio.wait({requests, replies}, return_when=asyncio.FIRST_COMPLETED)
            if not replies.done():
                # The client's side is finished or has failed; a failure must not wait for the worker.
                requests.result()
            return await asyncio.shield(replies)
        finally:
            self._settling = True
            self._lease.death.remove_done_callback(on_death)
            requests.cancel()
            if not self._writing:
                replies.cancel()
            # Nobody may watch the worker's socket any more once the worker is given back.
            await asyncio.gather(requests, *([] if self._writing else [replies]), return_exceptions=True)

    async def settle(self) -> None:
        """Return once nothing is being sent to the client any more, so that an error can be.

        gRPC does not take back a message whose sending has begun; a client that does not read gets some time.
        """
        if self._replies is None or self._replies.done():
            return
        await asyncio.wait({self._replies}, timeout=_LAST_MESSAGE_TIMEOUT_SECONDS)
        self._replies.cancel()
        await asyncio.gather(self._replies, return_exceptions=True)

    async def _relay_requests(self, opening: Opening, assignment: Assignment) -> None:
        try:
            await self._sender.send(FrameKind.COMMAND, assignment.encode(), opening.schema, opening.command)
            if opening.plain:
                await self._relay_plain_batches()
            else:
                await self._relay_numbered_batches()
            await self._sender.send(FrameKind.END)
            self._input_ended = True
        except PeerClosedError:
            # Why the worker is gone shows on the other direction, together with what it still said.
            return

    async def _relay_plain_batches(self) -> None:
        while (message := await self._call.read()) is not None:
            await self._relay_batch(message)

    async def _relay_numbered_batches(self) -> None:
        finished = False
        while (message := await self._call.read()) is not None:
            if finished:
                raise ProtocolError("a message came after the one that says finish")
            finished = await self._relay_batch(message)
        if not finished:
            # To gRPC's reader a cancelled call ends like a half-closed one; the cancellation arrives in this wait.
            await asyncio.sleep(_CANCELLATION_NOTICE_SECONDS)
            raise ProtocolError("the client ended its stream without finish: batches may have been lost")

    async def _relay_batch(self, message: bytes) -> bool:
        """Pass one message on; true when it says that it is the client's last."""
        _check_size(message, self._max_message_bytes)
        fields = split_flight_data(message)
        if fields.descriptor:
            raise ProtocolError("a flight descriptor came again: only the first message has one")
        self._transfer.received_messages += 1
        self._transfer.received_bytes += len(message)
        await self._sender.send(FrameKind.BATCH, fields.app_metadata, fields.data_header, fields.data_body)
        return not fields.data_header and _says_finish(fields.app_metadata)

    async def _relay_replies(self) -> LeaseOutcome:
        try:
            while True:
                frame = await self._receiver.receive()
                match frame.kind:
                    case FrameKind.MESSAGE:
                        await self._write(join_flight_data(frame.data_header, frame.app_metadata, frame.data_body))
                        if self._settling:
                            return LeaseOutcome.BROKEN
                    case FrameKind.DONE:
                        return LeaseOutcome.CLEAN if self._input_ended else LeaseOutcome.BROKEN
                    case FrameKind.RETIRED:
                        return LeaseOutcome.RETIRED
                    case FrameKind.FAILED:
                        raise error_from_message(Error.FromString(bytes(frame.app_metadata)))
                    case _:
                        raise FrameError(f"a worker may not send {frame.kind.name}")
        except PeerClosedError:
            raise await self._worker_error() from None
        except FrameTooLargeError as error:
            raise LimitError(
                f"the function's result of {error.payload_bytes} bytes is more than a message may hold, "
                f"{self._max_message_bytes} bytes: send smaller batches"
            ) from None
        except (FrameError, DecodeError) as error:
            raise InternalError(f"the worker sent what is not a frame: {error}") from error

    async def _write(self, message: bytes) -> None:
        self._transfer.sent_messages += 1
        self._transfer.sent_bytes += len(message)
        self._writing = True
        try:
            await self._call.write(message)
        finally:
            self._writing = False

    async def _worker_error(self) -> WorkerError:
        death: WorkerDeath | None = None
        try:
            async with asyncio.timeout(_EXIT_STATUS_TIMEOUT_SECONDS):
                death = await asyncio.shield(self._lease.death)
        except TimeoutError:
            return WorkerError("the worker closed its socket while it held the exchange")
        return WorkerError(f"the worker {death} while it held the exchange")


def _death_notice(receiver: FrameReceiver) -> Callable[[asyncio.Future[WorkerDeath]], None]:
    return lambda _death: receiver.peer_is_gone()


def _assignment(call: Call, opening: Opening) -> Assignment:
    return Assignment(
        request_id=uuid4().hex,
        tenant=call.header(TENANT_HEADER) or opening.task.application_id,
        function_name=opening.function if opening.plain else "",
        function_version=opening.version if opening.plain else "",
        traceparent=call.header(TRACE_HEADER),
    )


def _check_size(message: bytes, max_message_bytes: int) -> None:
    if len(message) > max_message_bytes:
        raise LimitError(
            f"a message of {len(message)} bytes is more than this pool takes, {max_message_bytes} bytes: "
            "send smaller batches or raise --max-message-bytes"
        )


def _says_finish(app_metadata: memoryview) -> bool:
    try:
        return RequestMetadata.FromString(bytes(app_metadata)).HasField("finish")
    except DecodeError as error:
        raise ProtocolError(f"the app_metadata of a message is not RequestMetadata: {error}") from None


async def _send_error(call: Call, error: UpdraftError) -> None:
    try:
        async with asyncio.timeout(_LAST_MESSAGE_TIMEOUT_SECONDS):
            metadata = ReplyMetadata(error=error.to_message()).SerializeToString()
            await call.write(join_flight_data(memoryview(b""), metadata, memoryview(b"")))
    except TimeoutError:
        _log.warning("the client does not read: it gets the error's status alone")
