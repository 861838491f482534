# SPDX-License-Identifier: Apache-2.0
"""One exchange: opened, admitted, relayed to a worker (`updraft_server.front.relay`), ended.

What is decided here is what a failure on either side means for the other, and how long anything may take: whatever
happens, the worker goes back exactly once and the client learns why.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from uuid import uuid4

import structlog

from updraft.errors import DeadlineError, ProtocolError, UpdraftError, WorkerError
from updraft.flight_data import join_flight_data
from updraft.service.spans import TRACE_HEADER, Tracer
from updraft.v1.exchange_pb2 import ReplyMetadata
from updraft_server.front.activity import Activity, ExchangePhase, OpenExchange
from updraft_server.front.admission import Admission, Grant
from updraft_server.front.artifacts.dialogue import ContentDialogue
from updraft_server.front.artifacts.gathering import Gathering, Provision
from updraft_server.front.batch_timeout import BatchTimeout
from updraft_server.front.capabilities import Capabilities
from updraft_server.front.metrics import FrontMetrics
from updraft_server.front.relay import LAST_MESSAGE_TIMEOUT_SECONDS, Call, Relay, RelayLimits, check_size
from updraft_server.front.request import Opening, parse_opening, resolve, with_function, with_schema
from updraft_server.front.running_exchanges import RunningExchanges
from updraft_server.ipc.assignment import Assignment
from updraft_server.pool.pool import LeaseOutcome

TENANT_HEADER = "x-updraft-tenant"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExchangeLimits:
    """What no exchange may exceed."""

    max_message_bytes: int
    first_message_timeout_seconds: float
    batch_timeout_seconds: float
    content_timeout_seconds: float


class Exchanges:
    """Serves exchanges, each in the task of its call."""

    def __init__(
        self,
        admission: Admission,
        gathering: Gathering,
        capabilities: Callable[[], Capabilities],
        limits: ExchangeLimits,
        running: RunningExchanges,
        metrics: FrontMetrics,
        activity: Activity,
        tracer: Tracer,
    ) -> None:
        self._admission = admission
        self._gathering = gathering
        self._capabilities = capabilities
        self._limits = limits
        self._running = running
        self._metrics = metrics
        self._activity = activity
        self._tracer = tracer

    async def serve(self, call: Call) -> None:
        """Serve one exchange; raises UpdraftError after telling the client in-band, where its protocol has that."""
        with self._tracer.exchange("updraft.pool.exchange", call.header(TRACE_HEADER)) as span:
            exchange = self._activity.begin()
            exchange.span = span
            await self._serve(call, exchange)

    async def _serve(self, call: Call, exchange: OpenExchange) -> None:
        opening: Opening | None = None
        outcome, reason = "cancelled", ""
        try:
            opening = parse_opening(await self._first_message(call))
            exchange.identity = opening.log_context
            exchange.span.describe(exchange.identity)
            opening = resolve(opening, self._capabilities())
            structlog.contextvars.bind_contextvars(**exchange.identity)
            if not opening.schema:
                opening = with_schema(opening, await self._first_message(call))
            await self._run(call, opening, exchange)
            outcome = "ok"
        except UpdraftError as error:
            outcome, reason = type(error).__name__, error.status_message()
            self._activity.failed(exchange, error)
            if opening is not None and not opening.plain:
                await _send_error(call, error)
            raise
        finally:
            self._activity.end(exchange)
            self._record(opening, outcome, exchange)
            _log.info("exchange ended", outcome=outcome, reason=reason, seconds=round(exchange.seconds, 4))

    async def _first_message(self, call: Call) -> bytes:
        timeout_seconds = self._limits.first_message_timeout_seconds
        try:
            async with asyncio.timeout(timeout_seconds):
                message = await call.read()
        except TimeoutError:
            raise ProtocolError(f"no schema within {timeout_seconds:g} seconds of the call's start") from None
        if message is None:
            raise ProtocolError("the exchange ended before its schema")
        check_size(message, self._limits.max_message_bytes)
        return message

    async def _run(self, call: Call, opening: Opening, exchange: OpenExchange) -> None:
        deadline_seconds = call.remaining_seconds
        try:
            async with asyncio.timeout(deadline_seconds) as deadline, AsyncExitStack() as stack:
                exchange.phase = ExchangePhase.PREPARING
                with self._admission.place(_tenant(call, opening), opening.task_key, opening.held_bytes) as place:
                    opening, provision = await place.unless_lost(self._prepared(call, opening, stack))
                    exchange.phase = ExchangePhase.WAITING
                    with exchange.span.child("updraft.pool.admission"), self._metrics.wait_seconds.time():
                        grant = await self._admission.worker(place, opening.binding)
                exchange.phase = ExchangePhase.RUNNING
                await self._with_worker(call, opening, provision, grant, exchange)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise DeadlineError(
                f"the exchange was not finished within {deadline_seconds:g} seconds, the deadline that its client set"
            ) from None

    async def _prepared(self, call: Call, opening: Opening, stack: AsyncExitStack) -> tuple[Opening, Provision]:
        """The opening with all that its function needs: what is large comes only now that there is room for it."""
        dialogue = ContentDialogue(
            call,
            max_message_bytes=self._limits.max_message_bytes,
            timeout_seconds=self._limits.content_timeout_seconds,
        )
        if opening.deferred is not None:
            opening = with_function(opening, await dialogue.function(opening.deferred))
            opening = resolve(opening, self._capabilities())
        return opening, await stack.enter_async_context(self._gathering.provided(dialogue, opening.needs))

    async def _with_worker(
        self, call: Call, opening: Opening, provision: Provision, grant: Grant, exchange: OpenExchange
    ) -> None:
        grant.lease.log_context.update(exchange.identity)
        batch_timeout = BatchTimeout.effective(
            self._limits.batch_timeout_seconds, opening.batch_timeout_milliseconds, opening.idle_timeout_milliseconds
        )
        limits = RelayLimits(self._limits.max_message_bytes, batch_timeout)
        relay = Relay(call, grant.lease, limits, exchange.transfer)
        outcome = LeaseOutcome.BROKEN
        began = time.monotonic()
        self._metrics.running.inc()
        try:
            # A worker has no exporter: here its span outlives it, and nothing of ours runs beside a user's function.
            with exchange.span.child("updraft.pool.function", {"process.pid": grant.lease.pid}) as running:
                traceparent = running.traceparent or call.header(TRACE_HEADER)
                with self._running.watching(relay):
                    outcome = await relay.run(
                        opening, _assignment(call, opening, provision, batch_timeout, traceparent)
                    )
        except asyncio.CancelledError:
            outcome = LeaseOutcome.CANCELLED
            raise
        except WorkerError:
            self._metrics.worker_deaths.inc()
            raise
        finally:
            self._metrics.running.dec()
            grant.release(outcome)
            if batches := exchange.transfer.batches:
                held_seconds = time.monotonic() - began
                self._metrics.batch_seconds.labels(opening.function).observe(held_seconds / batches)
            await relay.settle()

    def _record(self, opening: Opening | None, outcome: str, exchange: OpenExchange) -> None:
        # A name that was asked for but does not exist must not become a series.
        function = opening.function if opening is not None and opening.resolved else ""
        self._metrics.exchanges.labels(function, outcome).inc()
        self._metrics.exchange_seconds.labels(function).observe(exchange.seconds)
        self._metrics.rows.labels(function).inc(exchange.transfer.rows)
        self._metrics.applications.ended(exchange.identity, outcome, exchange.transfer)


def _tenant(call: Call, opening: Opening) -> str:
    return call.header(TENANT_HEADER) or opening.task.application_id


def _assignment(
    call: Call, opening: Opening, provision: Provision, batch_timeout: BatchTimeout, traceparent: str
) -> Assignment:
    return Assignment(
        request_id=uuid4().hex,
        tenant=_tenant(call, opening),
        function_name=opening.function if opening.plain else "",
        function_version=opening.version if opening.plain else "",
        batch_timeout_seconds=batch_timeout.batch_seconds,
        idle_timeout_seconds=batch_timeout.idle_seconds,
        traceparent=traceparent,
        files_directory=provision.files_directory,
        broadcasts={str(number): path for number, path in provision.broadcasts.items()},
    )


async def _send_error(call: Call, error: UpdraftError) -> None:
    try:
        async with asyncio.timeout(LAST_MESSAGE_TIMEOUT_SECONDS):
            metadata = ReplyMetadata(error=error.to_message()).SerializeToString()
            await call.write(join_flight_data(memoryview(b""), metadata, memoryview(b"")))
    except TimeoutError:
        _log.warning("the client does not read: it gets the error's status alone")
