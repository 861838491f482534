# SPDX-License-Identifier: Apache-2.0
"""Course of an exchange: it is opened, admitted, relayed to a worker (`updraft_server.front.relay.relay`) and ended.

This module decides how a failure on one side affects the other side, and how long each step may take. Whatever happens,
it gives the worker back exactly once and sends the client the reason.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from updraft.errors import PoolBusyError, UpdraftError
from updraft.protocol import DATABEND_TENANT_HEADER, LOG_KEY_HEADER
from updraft.service import exchange as calls
from updraft.service.early_reads import EarlyReads
from updraft.service.identity import Scope
from updraft.service.setting_names import SettingNames, configured_by
from updraft.service.spans import TRACE_HEADER, Tracer
from updraft.v1.exchange_pb2 import ReplyMetadata
from updraft_server.chart_values import value_of
from updraft_server.front.artifacts.collector import ArtifactCollector, CollectedArtifacts
from updraft_server.front.artifacts.dialogue import ARTIFACT_TIMEOUT_SECONDS, ArtifactDialogue
from updraft_server.front.limits.deaths import FunctionHealth, HoldBack
from updraft_server.front.limits.running_exchanges import RunningExchanges
from updraft_server.front.limits.verdict import Verdict, verdict
from updraft_server.front.queue.admission import Admission
from updraft_server.front.queue.place import Grant
from updraft_server.front.relay.batch_limits import BatchLimit, BatchTimeout
from updraft_server.front.relay.relay import Relay, RelayLimits
from updraft_server.front.relay.segment import Segments
from updraft_server.front.request.capabilities import Capabilities
from updraft_server.front.request.request import SERVICE, Request, parse_request, resolve
from updraft_server.front.signatures.signatures import CheckedFunction, Signatures
from updraft_server.front.status.activity import Activity, ExchangePhase, OpenExchange
from updraft_server.front.status.metrics import FrontMetrics
from updraft_server.front.status.readers import readers
from updraft_server.ipc.assignment import Assignment
from updraft_server.pool.bindings import Binding
from updraft_server.pool.leases import LeaseOutcome, Owner

if TYPE_CHECKING:
    from updraft_server.settings import FrontSettings

_SHIP = Scope.SESSION, "run session functions"
_CALL = Scope.CALL, "run registered functions"

# Above this size, hashing a payload takes longer than starting a thread for it.
_LARGE_PAYLOAD_BYTES = 256 * 1024

_log = structlog.get_logger(__name__)


@dataclass(eq=False, kw_only=True)
class Exchanges:
    """Exchanges of one front. Each runs in the asyncio task of its call."""

    settings: "FrontSettings"
    capabilities: Callable[[], Capabilities]
    """Function that returns what the pool can run now. It raises PoolUnavailableError before the pool has started."""
    admission: Admission
    collector: ArtifactCollector
    running: RunningExchanges
    signatures: Signatures
    functions: FunctionHealth
    hold_back: HoldBack
    early_reads: EarlyReads
    segments: Segments
    activity: Activity
    metrics: FrontMetrics
    tracer: Tracer

    def __post_init__(self) -> None:
        self._message_limits = calls.MessageLimits(SERVICE, self.settings.max_message_bytes)
        self._setting_names = SettingNames(configured_by(), value_of)

    def functions_loaded_again(self) -> None:
        """Give registered functions a clean record: their code has been replaced."""
        self.functions.loaded_again()
        self.hold_back.loaded_again()

    async def serve(self, call: calls.IdentifiedCall) -> None:
        """Serve one exchange; raise UpdraftError, after sending it in-band if the client's protocol allows that."""
        with self.tracer.exchange("updraft.pool.exchange", call.header(TRACE_HEADER)) as span:
            exchange = self.activity.begin()
            exchange.span = span
            await self._serve(call, exchange)

    async def _serve(self, call: calls.IdentifiedCall, exchange: OpenExchange) -> None:
        request: Request | None = None
        outcome, reason = "cancelled", ""
        is_refused_busy = False
        try:
            with self._setting_names.in_errors():
                read = self.early_reads.of(call)
                first = await calls.first_message(read, self._message_limits)
                request = parse_request(first, call.header)
                exchange.identity = request.log_context
                exchange.span.describe(exchange.identity)
                call.record.describe(**exchange.identity)
                exchange.readers = readers(call.identity, call.header(LOG_KEY_HEADER))
                # Check the scope before `resolve`, whose errors list the functions that exist.
                call.identity.require(*_scope_of(request))
                request = resolve(request, self.capabilities())
                structlog.contextvars.bind_contextvars(**exchange.identity)
                schema = bytes(await calls.schema_header(read, first, self._message_limits))
                # Free the message: it may be large, and the exchange may take long.
                del first
                await self._run(call, replace(request, schema=schema), exchange)
            outcome = "ok"
        except UpdraftError as error:
            outcome, reason = type(error).__name__, error.first_line()
            # The client asked for an error instead of a wait, and may retry at another pod.
            is_refused_busy = isinstance(error, PoolBusyError)
            # Record the error before sending it, because a client that receives it may cancel the call.
            if not is_refused_busy:
                self.activity.failed(exchange, error)
                exchange.span.fail(error)
            call.record.fail(error)
            if request is not None and not request.plain:
                await _send_error(call, error)
            raise
        finally:
            self.activity.end(exchange)
            log = _log.info
            if not is_refused_busy:
                self._record(request, outcome, exchange)
            elif request is not None and request.command.is_helper:
                # Log quietly: a task keeps opening helper exchanges while it waits for its function.
                log = _log.debug
            else:
                self.metrics.refused_busy.inc()
            log("exchange ended", outcome=outcome, reason=reason, seconds=round(exchange.seconds, 4))

    async def _run(self, call: calls.IdentifiedCall, request: Request, exchange: OpenExchange) -> None:
        async with calls.within_deadline(call, "exchange"), AsyncExitStack() as stack:
            exchange.phase = ExchangePhase.PREPARING
            owner = _owner(call, request)
            call.record.describe(tenant=owner.tenant, session=owner.session_id)
            share = calls.share_of(call, owner.tenant)
            may_wait, is_helper = request.may_wait, request.command.is_helper
            if not may_wait:
                self.admission.check_free(share, request.task_key)
                # Do not refuse an exchange after its upload, because the client would have to upload again to the next
                # pod. A helper may be refused at any time, because no client retries it at another pod.
                may_wait = request.may_upload and not is_helper
            checked = self.signatures.check(request, owner) if request.is_session else None
            with self.admission.place(share, request.task_key, request.held_bytes, is_helper=is_helper) as place:
                if request.plain:
                    # Send the headers now: engines of plain Flight wait only seconds, and a worker may come later.
                    await call.accept()
                request, artifacts = await place.unless_lost(self._prepared(call, request, owner, checked, stack))
                self._refuse_if_held_back(owner, request)
                await _recorded(call, request)
                exchange.phase = ExchangePhase.WAITING
                with exchange.span.child("updraft.pool.admission"), self.metrics.wait_seconds.time():
                    binding = self._binding(owner, request)
                    grant = await self.admission.worker(place, binding, may_wait=may_wait)
            try:
                # During the wait, other exchanges may have caused a hold-back, and credentials may have changed.
                self._refuse_if_held_back(owner, request)
                await _known_still(call, request, owner)
                if checked is not None:
                    checked.check_again()
            except BaseException:
                grant.release(LeaseOutcome.CLEAN)
                raise
            exchange.phase = ExchangePhase.RUNNING
            await self._with_worker(call, request, owner, artifacts, grant, exchange)

    def _refuse_if_held_back(self, owner: Owner, request: Request) -> None:
        try:
            self.hold_back.check(owner, request)
        except UpdraftError:
            self.metrics.held_back.inc()
            raise

    def _binding(self, owner: Owner, request: Request) -> Binding:
        if request.is_session:
            return Binding(owner, request.modules)
        return Binding(None, restricted=request.function in self.settings.restricted_functions)

    async def _prepared(
        self, call: calls.Call, request: Request, owner: Owner, checked: CheckedFunction | None, stack: AsyncExitStack
    ) -> tuple[Request, CollectedArtifacts]:
        """Return the request with its payload, and its artifacts.

        Clients send artifacts and deferred payloads only after the exchange has a place in the queue.
        """
        read = self.early_reads.of(call)
        dialogue = ArtifactDialogue(read, call.write, self._message_limits, timeout_seconds=ARTIFACT_TIMEOUT_SECONDS)
        if request.deferred is not None:
            request = replace(request, payload=await dialogue.payload(request.deferred))
        if checked is None:
            return request, CollectedArtifacts()
        is_large = len(request.payload) > _LARGE_PAYLOAD_BYTES
        fits = await asyncio.to_thread(checked.fits, request.payload) if is_large else checked.fits(request.payload)
        checked.settle(fits=fits)
        if signed_by := checked.signed_by:
            digests = [f"sha256:{digest.hex()}" for digest in signed_by.digests]
            call.record.describe(signer=signed_by.signer, functions=digests)
        collected = self.collector.collected(dialogue, owner, request.needs, share=calls.share_of(call, owner.tenant))
        return request, await stack.enter_async_context(collected)

    async def _with_worker(
        self,
        call: calls.Call,
        request: Request,
        owner: Owner,
        artifacts: CollectedArtifacts,
        grant: Grant,
        exchange: OpenExchange,
    ) -> None:
        grant.lease.log_context.update(exchange.identity)
        grant.lease.log_context.readers = exchange.readers
        exchange.worker = grant.lease.worker
        binding = self._binding(owner, request)
        batch_timeout = BatchTimeout.effective(
            self.settings.batch_timeout_seconds or 0.0,
            request.command.limits.idle_timeout_milliseconds,
        )
        limits = RelayLimits(self.settings.max_message_bytes, batch_timeout, self.segments)
        relay = Relay(call, grant.lease, request, limits, exchange.transfer)
        outcome = LeaseOutcome.BROKEN
        began = time.monotonic()
        self.metrics.running.inc()
        try:
            # The front records this span, not the worker. Therefore the span survives a crash of the worker, and no
            # exporter runs next to user code.
            with exchange.span.child("updraft.pool.function", {"updraft.worker": grant.lease.worker}) as running:
                traceparent = running.traceparent or call.header(TRACE_HEADER)
                with self.running.watching(relay, calls.share_of(call, owner.tenant)):
                    outcome = await relay.run(
                        _assignment(request, owner, binding, artifacts, batch_timeout, traceparent, self._batch_limit())
                    )
        except asyncio.CancelledError:
            outcome = LeaseOutcome.CANCELLED
            raise
        except UpdraftError as error:
            death = grant.lease.death
            found = verdict(
                error, relay.end_state, death.result() if death.done() else None, self.running.last_memory_use
            )
            self._act_on(found, owner, request)
            raise found.error from None
        finally:
            self.metrics.running.dec()
            exchange.worker = ""
            grant.release(outcome)
            if outcome in (LeaseOutcome.CLEAN, LeaseOutcome.RETIRED):
                self.hold_back.succeeded(owner, request)
                if not request.is_session:
                    self.functions.succeeded(request)
            if batches := exchange.transfer.batches:
                held_seconds = time.monotonic() - began
                self.metrics.batch_seconds.labels(request.function).observe(held_seconds / batches)
            await relay.settle()

    def _batch_limit(self) -> BatchLimit:
        return BatchLimit.effective(self.settings.max_batch_bytes, self.running.worker_memory_bytes)

    def _act_on(self, found: Verdict, owner: Owner, request: Request) -> None:
        self.metrics.worker_deaths.inc(found.worker_died)
        self.running.out_of_memory["container"] += found.exhausted_container
        if found.blames_function:
            self.hold_back.died(owner, request)
        if found.blames_rows:
            self.hold_back.ended_a_model(owner, request)
        if found.load_failed:
            self.functions.could_not_be_loaded(request, found.error)
        elif found.blames_function and not request.is_session:
            self.functions.died(request, found.error)

    def _record(self, request: Request | None, outcome: str, exchange: OpenExchange) -> None:
        # Names of unknown functions must not become time series.
        function = request.function if request is not None and request.resolved else ""
        self.metrics.exchanges.labels(function, outcome).inc()
        self.metrics.exchange_seconds.labels(function).observe(exchange.seconds)
        self.metrics.rows.labels(function).inc(exchange.transfer.rows)
        self.metrics.applications.ended(exchange.identity, outcome, exchange.transfer)


def _scope_of(request: Request) -> tuple[Scope, str]:
    return _SHIP if request.is_session else _CALL


async def _known_still(call: calls.IdentifiedCall, request: Request, owner: Owner) -> None:
    """Raise UnauthenticatedError or PermissionDeniedError if the caller's credentials no longer allow the exchange."""
    identity = await call.identity_now()
    identity.require(*_scope_of(request))
    identity.tenant_of([owner.tenant])


async def _recorded(call: calls.Call, request: Request) -> None:
    """Record in the audit log what the exchange runs; raise PoolUnavailableError if that fails."""
    if not call.record.is_kept:
        return
    if request.is_session:
        # Hashing a large payload takes a while, so do it in a thread.
        digest = await asyncio.to_thread(hashlib.sha256, request.payload)
        call.record.describe(digest=f"sha256:{digest.hexdigest()}", eval_type=request.command.session.eval_type)
    else:
        call.record.describe(version=request.version)
    await call.record.opened()


def _owner(call: calls.Call, request: Request) -> Owner:
    task = request.command.task
    tenant = calls.tenant_of(call, task)
    if not tenant and request.plain:
        # Databend sends its own tenant header with every call, so use this header only if nothing else names a tenant.
        tenant = call.identity.tenant_of([call.header(DATABEND_TENANT_HEADER)])
    return Owner(tenant, task.owner.application_id, task.owner.session_id)


def _assignment(
    request: Request,
    owner: Owner,
    binding: Binding,
    artifacts: CollectedArtifacts,
    batch_timeout: BatchTimeout,
    traceparent: str,
    batch_limit: BatchLimit,
) -> Assignment:
    session, registered = request.command.session, request.command.registered
    return Assignment(
        tenant=owner.tenant,
        owner=binding.owner or (),
        restricted=binding.restricted,
        plain=request.plain,
        databend=request.databend,
        function_name="" if request.is_session else request.function,
        function_version=request.version,
        stage=registered.stage,
        key_columns=registered.key_columns,
        joined=registered.joined,
        filtered=registered.filtered,
        eval_type=session.eval_type,
        python_includes=list(session.python_includes),
        environment={**session.environment, **session.user_environment},
        task=request.command.task,
        limits=request.command.limits,
        batch_timeout_seconds=batch_timeout.batch_seconds,
        idle_timeout_seconds=batch_timeout.idle_seconds,
        traceparent=traceparent,
        max_batch_bytes=batch_limit.limit_bytes,
        max_batch_bytes_setting=batch_limit.setting,
        artifacts_directory=artifacts.directory,
        files_directory=artifacts.files_directory,
        broadcasts={str(number): path for number, path in artifacts.broadcasts.items()},
    )


async def _send_error(call: calls.Call, error: UpdraftError) -> None:
    await calls.send_last(call.write(calls.event_message(ReplyMetadata(error=error.to_message()))))
