# SPDX-License-Identifier: Apache-2.0
"""Front process: wires the listeners to the pool, then starts, serves, drains and stops.

`updraft_server.supervisor.supervisor` starts it as `python -m updraft_server.front.process`, with the settings in the
environment.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from updraft.errors import PoolFullError, PoolUnavailableError
from updraft.service.allocator import retain_freed_memory
from updraft.service.audit import Audit
from updraft.service.early_reads import EarlyReads
from updraft.service.heartbeat import Heartbeat
from updraft.service.lifecycle import Event, Lifecycle, Phase, StartError, keep_beating
from updraft.service.listeners import Listeners
from updraft.service.parent import follow_parent
from updraft.service.privileges import keep_few_capabilities
from updraft.service.spans import Tracer
from updraft.service.telemetry import LOG_DROPS, log_to_stderr
from updraft.service.tenants import RESERVED_TENANTS, Caps
from updraft.service.tracing import start_tracing
from updraft_server.front.artifacts.collector import ArtifactCollector
from updraft_server.front.artifacts.dialogue import ARTIFACT_TIMEOUT_SECONDS
from updraft_server.front.artifacts.store import ArtifactStore
from updraft_server.front.artifacts.unpackers import Unpackers
from updraft_server.front.exchange import Exchanges
from updraft_server.front.limits.deaths import ALLOWED_DEATHS, FunctionHealth, HoldBack
from updraft_server.front.limits.running_exchanges import RunningExchanges, longest_processor_seconds
from updraft_server.front.limits.worker_limits import WorkerLimits
from updraft_server.front.queue.admission import QUEUE_BYTES, RETRY_AFTER_MILLISECONDS, Admission, AdmissionLimits
from updraft_server.front.relay.segment import Segments
from updraft_server.front.request.capabilities import Capabilities
from updraft_server.front.request.request import SERVICE
from updraft_server.front.service import PoolService
from updraft_server.front.signatures.signatures import Signatures
from updraft_server.front.status.activity import Activity
from updraft_server.front.status.announcement import Announcement, PoolHealth
from updraft_server.front.status.metrics import FrontMetrics
from updraft_server.front.status.output_log import OutputLog
from updraft_server.front.status.page import status_pages
from updraft_server.front.status.pool_metrics import has_layer, watch_pool
from updraft_server.front.status.report import Sampler
from updraft_server.ipc import settings_handover
from updraft_server.ipc.control import CONTROL_VARIABLE, KNOWN_VARIABLE, WorkersSecret
from updraft_server.ipc.model_packets import LimitModels, memory_bytes
from updraft_server.ipc.worker_usage import LONGEST_WORK_SECONDS
from updraft_server.linux.process_control import hide_memory
from updraft_server.pool.interface import WorkerPool, until
from updraft_server.pool.leases import PoolError, PoolSettings
from updraft_server.pool.pool import Pool
from updraft_server.pool.worker_events import DroppedOutput, WorkerOutput
from updraft_server.pool.zygote_source import ControlConnection
from updraft_server.sandbox_layers import NEEDS, RESTRICTED, SECCOMP
from updraft_server.segments_directory import segments_directory

if TYPE_CHECKING:
    from updraft_server.settings import FrontSettings

_log = structlog.get_logger(__name__)

# Time in which exchanges that a drain has ended must give their workers back. After that, the pool kills the workers.
_ENDING_SECONDS = 2.0


@dataclass(eq=False, kw_only=True)
class Front:
    """Front with its pool, queue and listeners. `assemble` creates it."""

    settings: "FrontSettings"
    pool: WorkerPool
    lifecycle: Lifecycle
    activity: Activity
    metrics: FrontMetrics
    admission: Admission
    running: RunningExchanges
    early_reads: EarlyReads
    signatures: Signatures
    functions: FunctionHealth
    artifacts: ArtifactStore
    health: PoolHealth
    sampler: Sampler
    audit: Audit
    tracer: Tracer
    segments: Segments
    listeners: Listeners
    announcement: Announcement

    async def run(self) -> None:
        """Serve until a drain has ended; raise StartError or PoolError if the front cannot start."""
        async with AsyncExitStack() as stack:
            for background in (
                self.health.run(),
                self.sampler.run(),
                self.running.watch(),
                self.running.watch_clocks(),
                self.running.watch_limits(),
                self.early_reads.watch(),
                self.signatures.watch(),
            ):
                stack.callback(asyncio.create_task(background).cancel)
            stack.callback(self.segments.close)
            stack.push_async_callback(asyncio.to_thread, self.tracer.close)
            stack.push_async_callback(asyncio.to_thread, self.audit.close)
            stack.push_async_callback(self.listeners.close)
            stack.push_async_callback(self.pool.close, 0.0)
            # Start the listeners first: an address in use is reported at once, and probes get answers during the start.
            await self.listeners.start(self.metrics)
            await self._unless_draining(self._started())
            self.lifecycle.handle(Event.STARTED)
            if self.lifecycle.phase is Phase.READY:
                self.announcement.begin()
            await self.lifecycle.drain_requested()
            await self._drain()

    async def _started(self) -> None:
        """Start the pool; raise StartError if functions that the operator restricts would run unrestricted."""
        await self.pool.start()
        restricted = self.settings.restricted_functions
        known = {function.name for function in self.pool.functions}
        # A description without a version stands for a module that cannot be imported. Its functions are unknown, but
        # cannot be called anyway.
        are_all_known = all(function.version for function in self.pool.functions)
        if are_all_known and (unknown := [name for name in restricted if name not in known]):
            raise StartError(
                f"--restricted-functions names {', '.join(unknown)}, which no module of --functions registers"
            )
        if restricted and not has_layer(self.pool, SECCOMP):
            raise StartError(f"--restricted-functions needs the layer {SECCOMP!r}: {NEEDS[RESTRICTED]}")

    async def _unless_draining(self, start: Coroutine[Any, Any, None]) -> None:
        """Wait until the start has finished, or cancel it if a drain is requested first."""
        starting = asyncio.create_task(start)
        draining = asyncio.create_task(self.lifecycle.drain_requested())
        try:
            await asyncio.wait({starting, draining}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
        finally:
            starting.cancel()
            draining.cancel()

    async def _drain(self) -> None:
        _log.info("draining", running=self.pool.busy, waiting=self.admission.waiting)
        self.admission.drain()
        await self.health.publish()
        # Keep the listener open until running exchanges have ended: it refuses new exchanges and answers probes.
        try:
            async with asyncio.timeout(self.settings.drain_timeout_seconds):
                await self._idle()
        except TimeoutError:
            await self._end_running()
        await self.listeners.stop_flight()
        self.lifecycle.handle(Event.DRAINED)
        _log.info("drained")

    async def _end_running(self) -> None:
        """End exchanges that still run after the drain timeout; the error tells each client to try another pool."""
        limit_seconds = self.settings.drain_timeout_seconds
        _log.warning("exchanges did not finish within the drain timeout", running=self.pool.busy)
        self.running.end_all(
            PoolUnavailableError(
                f"the pool is draining and ended the exchange, which was not finished {limit_seconds:g} seconds after "
                "the drain began: another pool can take it; for exchanges that need longer raise "
                "--drain-timeout-seconds"
            )
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ENDING_SECONDS):
                await self._idle()

    async def _idle(self) -> None:
        await until(self.pool, lambda: self.pool.busy == 0)


def assemble(
    settings: "FrontSettings",
    pool: WorkerPool,
    artifacts_directory: Path,
    neighbours_token_file: Path | None = None,
    output: OutputLog | None = None,
) -> Front:
    """Return the front of a pool, ready to `run`.

    Raises OSError if the artifacts directory cannot be created, and StartError if a file cannot be read.

    Args:
        settings: Settings of the front.
        pool: Pool that has not started.
        artifacts_directory: Directory for artifacts, writable only by the front. This function empties it.
        neighbours_token_file: File with the token with which processes on this machine read metrics and status.
        output: Log to which the pool's workers add the output of functions.
    """
    lifecycle, activity = Lifecycle(), Activity()
    metrics = FrontMetrics(activity)
    caps = Caps(lambda tenant: listeners.caps_of(tenant))
    health = PoolHealth(pool, lifecycle, lambda: functions.faults())
    functions = FunctionHealth(lambda: pool.functions, lambda: pool.model_faults, health.change)
    hold_back = HoldBack(ALLOWED_DEATHS)
    signatures = Signatures(settings.signers_file, required=settings.session_functions == "signed")
    tenants = RESERVED_TENANTS if settings.identities_file is not None else 0
    limits = AdmissionLimits(settings.queue_limit, QUEUE_BYTES, RETRY_AFTER_MILLISECONDS, tenants)
    admission = Admission(pool, limits, caps)
    artifacts = ArtifactStore(
        artifacts_directory,
        limit_bytes=settings.artifact_store_bytes,
        retry_after_milliseconds=RETRY_AFTER_MILLISECONDS,
        caps=caps,
    )
    running = RunningExchanges(
        pool,
        client_silence_seconds=settings.client_silence_seconds,
        worker_silence_seconds=settings.worker_silence_seconds,
        limits=lambda: WorkerLimits.effective(
            # Model processes share this memory, so subtract what they use.
            there_is_bytes=max(1, pool.memory_limit_bytes - memory_bytes(pool.model_usage)),
            memory_bytes=settings.worker_memory_bytes,
            processes=settings.worker_processes,
            scratch_bytes=settings.worker_scratch_bytes,
        ),
        giving_way=admission.giving_way,
        batch_processor_seconds=_batch_processor_seconds(settings),
        longest_batch_seconds=LONGEST_WORK_SECONDS if settings.batch_timeout_seconds is None else 0.0,
    )
    early_reads = EarlyReads(
        limit_bytes=QUEUE_BYTES,
        refusal=lambda: PoolFullError(
            f"messages of waiting exchanges use all {QUEUE_BYTES} bytes of memory that the pool has for them: retry "
            "later, or give it more workers",
            retry_after_milliseconds=RETRY_AFTER_MILLISECONDS,
        ),
        # For each busy worker, the front may hold one message in each direction.
        elsewhere=lambda: 2 * pool.busy * settings.max_message_bytes,
    )

    def capabilities() -> Capabilities:
        # Until the pool has started, every function would be reported as unknown, which the client treats as final.
        if lifecycle.phase is Phase.STARTING or not pool.functions:
            raise PoolUnavailableError("the pool has not started yet: try again")
        return Capabilities.of(pool, settings.session_functions)

    access = "owner" if settings.listen_unix is None else settings.listen_unix_access
    segments = Segments(segments_directory(settings.listen_address, settings.listen_unix), access)
    tracer = start_tracing(settings.trace_endpoint, service="updraft-pool")
    exchanges = Exchanges(
        settings=settings,
        capabilities=capabilities,
        admission=admission,
        collector=ArtifactCollector(artifacts, Unpackers(), timeout_seconds=ARTIFACT_TIMEOUT_SECONDS),
        running=running,
        signatures=signatures,
        functions=functions,
        hold_back=hold_back,
        early_reads=early_reads,
        segments=segments,
        activity=activity,
        metrics=metrics,
        tracer=tracer,
    )
    service = PoolService(exchanges, pool, lifecycle, output or OutputLog())
    sampler = Sampler(
        service.status,
        activity,
        health.board.published,
        pool.exits,
        settings.workers,
        lambda: pool.workers,
        lambda: pool.model_usage,
    )
    audit = Audit(SERVICE, settings.audit_file, refuses=settings.audit_failure == "refuse")
    pages = status_pages(lambda: sampler.report)
    listeners = Listeners(settings, service, health.board, audit, pages, neighbours_token_file)
    watch_pool(metrics, pool, wanted_workers=settings.workers + _fresh_workers(settings))
    for part in (caps, functions, hold_back, signatures, admission, artifacts, running, early_reads, audit):
        part.show_in(metrics)
    token = {} if neighbours_token_file is None else {"metrics_token_file": str(neighbours_token_file)}
    announcement = Announcement(
        pool, lambda: {**listeners.addresses, **token}, settings.ready_file, exchanges.functions_loaded_again
    )
    return Front(
        settings=settings,
        pool=pool,
        lifecycle=lifecycle,
        activity=activity,
        metrics=metrics,
        admission=admission,
        running=running,
        early_reads=early_reads,
        signatures=signatures,
        functions=functions,
        artifacts=artifacts,
        health=health,
        sampler=sampler,
        audit=audit,
        tracer=tracer,
        segments=segments,
        listeners=listeners,
        announcement=announcement,
    )


def _fresh_workers(settings: "FrontSettings") -> int:
    """Return how many fresh workers to keep; 0 if only registered functions run, because those share workers."""
    return 0 if settings.session_functions == "off" else settings.fresh_workers


def _batch_processor_seconds(settings: "FrontSettings") -> float:
    return longest_processor_seconds() if settings.batch_cpu_seconds is None else settings.batch_cpu_seconds


def _log_output(log: OutputLog, output: WorkerOutput) -> None:
    log.take(output)
    _log.info("worker output", worker=output.worker, line=output.line, **output.context)


def _log_dropped_output(log: OutputLog, output: DroppedOutput) -> None:
    """Count and log lines of output that were dropped because a worker printed too many."""
    log.take_drop(output)
    LOG_DROPS.add("flood", output.lines)
    _log.warning(
        "worker output was dropped: print less, or raise --output-lines-per-second",
        worker=output.worker,
        lines=output.lines,
        bytes=output.bytes,
        **output.context,
    )


async def _serve(settings: "FrontSettings", control: socket.socket, known: WorkersSecret | None) -> None:
    pool_settings = PoolSettings(
        workers=settings.workers,
        fresh_workers=_fresh_workers(settings),
        zygotes=ControlConnection(control, known),
        output_lines_per_second=settings.output_lines_per_second,
        idle_seconds=settings.idle_worker_seconds,
        model_limits=LimitModels.of(
            settings.worker_processes,
            settings.worker_scratch_bytes,
            batch_processor_seconds=_batch_processor_seconds(settings),
        ),
    )
    output = OutputLog()
    pool = Pool(pool_settings, partial(_log_output, output), partial(_log_dropped_output, output))
    try:
        token = os.environ.get(settings_handover.NEIGHBOURS_TOKEN_VARIABLE)
        artifacts = Path(os.environ[settings_handover.ARTIFACTS_VARIABLE])
        front = assemble(settings, pool, artifacts, Path(token) if token else None, output)
    except OSError as error:
        raise StartError(f"the directory of artifacts cannot be made: {error}") from error
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, front.lifecycle.handle, Event.DRAIN_REQUESTED)
    beating = asyncio.create_task(keep_beating(Heartbeat.inherited()))
    try:
        await front.run()
    finally:
        beating.cancel()


def main() -> None:
    """Run the front in this process; exit with status 1 and one log line if it cannot start."""
    import uvloop

    follow_parent()
    hide_memory()
    keep_few_capabilities()
    retain_freed_memory()
    settings = settings_handover.take_over(os.environ[settings_handover.FRONT_SETTINGS_VARIABLE])
    control = socket.socket(fileno=int(os.environ.pop(CONTROL_VARIABLE)))
    known = WorkersSecret(int(os.environ.pop(KNOWN_VARIABLE))) if KNOWN_VARIABLE in os.environ else None
    # Unpackers, which this process starts, must not inherit the descriptors.
    control.set_inheritable(False)
    if known is not None:
        os.set_inheritable(known.descriptor, False)  # noqa: FBT003
    log_to_stderr(log_format=settings.log_format, level=settings.log_level, process="front")
    try:
        uvloop.run(_serve(settings, control, known))
    except (StartError, PoolError) as error:
        _log.error("the front cannot start", reason=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
