# SPDX-License-Identifier: Apache-2.0
"""Writer process: it connects quota, files and listeners, and runs them from start through drain to stop."""

import asyncio
import atexit
import json
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress

import structlog

from updraft.container_memory import memory_limits, resident_bytes
from updraft.errors import PoolUnavailableError, QuotaError
from updraft.service.allocator import clean_freed_memory
from updraft.service.audit import Audit
from updraft.service.early_reads import EarlyReads, allocated_bytes
from updraft.service.flight_service import FLIGHT_SERVICE_NAME
from updraft.service.health import WHOLE_SERVICE, HealthBoard
from updraft.service.heartbeat import Heartbeat
from updraft.service.lifecycle import Event, Lifecycle, ReadyFile, StartError, keep_beating
from updraft.service.listeners import Listeners
from updraft.service.setting_names import SettingNames, configured_by
from updraft.service.telemetry import log_to_stderr
from updraft.service.tenants import Caps, own_room
from updraft.service.tracing import start_tracing
from updraft.service.web import WebPage
from updraft_writer.exchanges import Exchanges
from updraft_writer.file_factory import FileFactory
from updraft_writer.gpu.admission import DeviceAdmission, DeviceLimits
from updraft_writer.gpu.costs import Costs
from updraft_writer.gpu.gpu import Gpu, described, find_engine, set_up_library
from updraft_writer.gpu.staging import Staging, pool_bytes
from updraft_writer.location import Root
from updraft_writer.metrics import WriterMetrics
from updraft_writer.open_files import OpenFiles
from updraft_writer.quota import STREAM_BYTES, Quota, QuotaLimits, default_quota
from updraft_writer.reason import Reason
from updraft_writer.receivers import RECEIVER_BYTES, number_of_receivers
from updraft_writer.receivers.receivers import Receivers
from updraft_writer.receivers.shared_memory import SharedMemory
from updraft_writer.request import SERVICE
from updraft_writer.service import WriterService
from updraft_writer.settings import ServeSettings, value_of

# Time for removing hidden files after a drain has ended unfinished files.
_CLOSING_SECONDS = 5.0

_log = structlog.get_logger(__name__)


class Writer:
    """Writer with its quota, its open files and its listeners."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self.lifecycle = Lifecycle()
        self.metrics = WriterMetrics()
        # Find the GPU before computing the quota, because the quota excludes the memory of the GPU's libraries.
        limit_bytes = min(memory_limits().values())
        self._library_bytes = set_up_library(limit_bytes) if settings.encoder != "cpu" else 0
        self._gpu = self._found_gpu(staging_bytes := pool_bytes(limit_bytes))
        caps = Caps(lambda tenant: self._listeners.caps_of(tenant))
        caps.show_in(self.metrics)
        pinned_bytes = self._library_bytes + staging_bytes if isinstance(self._gpu, Gpu) else 0
        receivers = number_of_receivers(len(os.sched_getaffinity(0)))
        if settings.listen_address is None:
            # Several receivers can share a TCP port, but not a Unix socket.
            receivers = min(receivers, 1)
        limits = _quota_limits(settings, pinned_bytes=pinned_bytes, receivers_bytes=receivers * RECEIVER_BYTES)
        self.quota = Quota(limits, caps=caps)
        self.files = OpenFiles(
            self.quota,
            max_open_files=settings.max_open_files,
            leave_device=self._gpu.admission.release_idle if isinstance(self._gpu, Gpu) else lambda: None,
        )
        self.factory = FileFactory(self.quota, self.files, self._gpu, settings)
        self.receivers = self._made_receivers(receivers) if receivers else None
        """Receivers; None if this process receives."""
        self._tracer = start_tracing(settings.trace_endpoint, service="updraft-writer")
        self._early_reads = EarlyReads(
            limit_bytes=self.quota.limits.quota_bytes,
            refusal=lambda: QuotaError(
                "messages for files that are not open yet use all the memory allowed for them: retry later",
                retry_after_milliseconds=self.quota.limits.retry_after_milliseconds,
            ),
            elsewhere=lambda: len(self.files) * STREAM_BYTES,
            allocated=self.receivers.allocated_bytes if self.receivers else allocated_bytes,
            clean=self.receivers.clean_freed_memory if self.receivers else clean_freed_memory,
        )
        self._service = WriterService(
            exchanges=Exchanges(
                self.quota,
                self.files,
                self.factory,
                settings,
                self.metrics,
                self._tracer,
                self._early_reads,
                SettingNames(configured_by(), value_of),
            ),
            quota=self.quota,
            files=self.files,
            lifecycle=self.lifecycle,
            gpu=self._gpu,
            allow_remote_drain=settings.allow_remote_drain,
        )
        self._health = HealthBoard()
        pages = {"/status.json": self._status_page}
        self._audit = Audit(SERVICE, settings.audit_file, refuses=settings.audit_failure == "refuse")
        self._audit.show_in(self.metrics)
        self._listeners = Listeners(
            settings, self._service, self._health, self._audit, pages, flight_server=self.receivers
        )
        self._watch()

    async def run(self) -> None:
        """Serve until a drain has ended; raises StartError if a listener cannot start."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(asyncio.to_thread, self._tracer.close)
            stack.push_async_callback(asyncio.to_thread, self._audit.close)
            stack.callback(self.factory.close)
            stack.push_async_callback(self._listeners.close)
            stack.callback(asyncio.create_task(self._early_reads.watch()).cancel)
            await self._listeners.start(self.metrics)
            await self._publish_health(serving=True)
            self.lifecycle.handle(Event.STARTED)
            self._announce()
            await self._drain_requested()
            await self._drain()

    async def _drain_requested(self) -> None:
        """Wait for a request to drain; raise StartError if receivers are no longer replaced."""
        request = asyncio.create_task(self.lifecycle.drain_requested())
        failed = {self.receivers.failed} if self.receivers else set()
        await asyncio.wait({request, *failed}, return_when=asyncio.FIRST_COMPLETED)
        if not request.done():
            request.cancel()
            for failure in failed:
                failure.result()

    async def _drain(self) -> None:
        _log.info("draining", open_files=len(self.files))
        self.files.refuse()
        await self._publish_health(serving=False)
        # The listener stays open until the files are finished, to refuse new clients, which then use another writer,
        # and to answer probes.
        limit_seconds = self._settings.drain_timeout_seconds
        if not await self._idle(limit_seconds):
            _log.warning("files were not finished within the drain timeout", open_files=len(self.files))
            self.files.fail_all(
                PoolUnavailableError(
                    f"the writer is draining and ended the file, which was not finished {limit_seconds:g} seconds "
                    "after the drain began: nothing was published, and another writer can take it; for files that "
                    "need longer raise --drain-timeout-seconds"
                )
            )
            await self._idle(_CLOSING_SECONDS)
        await self._listeners.stop_flight()
        self.lifecycle.handle(Event.DRAINED)
        _log.info("drained", held_bytes=self.quota.held_bytes)

    async def _idle(self, timeout_seconds: float) -> bool:
        """Wait until all files are closed, but at most for the timeout; return whether they are closed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self.files.closed()
        return not len(self.files)

    def _made_receivers(self, number: int) -> Receivers:
        quota, blocks = self.quota, self.factory.blocks
        memory = SharedMemory(
            quota.limits.quota_bytes + self._settings.max_message_bytes,
            room_bytes=lambda: quota.limits.quota_bytes - quota.held_bytes - blocks.idle_bytes,
        )
        # Free blocks and idle pages together stay within the unused quota.
        blocks.elsewhere = lambda: memory.idle_bytes

        def trim() -> None:
            blocks.trim()
            memory.trim()

        quota.on_growth = trim
        return Receivers(self._settings, memory, number)

    def _found_gpu(self, staging_bytes: int) -> Gpu | Reason:
        settings = self._settings
        engine = find_engine(settings.encoder, memory_bytes=settings.gpu_memory_bytes)
        if not isinstance(engine, Reason):
            limits = DeviceLimits(engine.memory_bytes)
            costs = Costs.measured() if settings.encoder == "auto" else None
            admission = DeviceAdmission(limits, may_hold=lambda: not self.quota.waiting)
            return Gpu(engine, admission, Staging(engine.pinned, staging_bytes), costs)
        if settings.encoder == "gpu":
            raise StartError(f"--encoder gpu, but {engine.text}")
        return engine

    def _status_page(self) -> WebPage:
        receivers = self.receivers.open_calls if self.receivers is not None else {}
        status = {**self._service.status(), "health": dict(self._health.published), "receivers": receivers}
        return WebPage("application/json", json.dumps(status).encode())

    def _watch(self) -> None:
        quota, metrics = self.quota, self.metrics
        metrics.watch(
            "updraft_writer_quota_bytes", "Quota: bytes that the writer may hold.", lambda: quota.limits.quota_bytes
        )
        metrics.watch("updraft_writer_held_bytes", "Bytes that the writer holds.", lambda: quota.held_bytes)
        metrics.watch("updraft_writer_peak_bytes", "Most bytes that the writer has held.", lambda: quota.peak_bytes)
        metrics.watch("updraft_writer_batches_waiting", "Batches that wait for the quota.", lambda: quota.waiting)
        metrics.watch("updraft_writer_open_files", "Open files.", lambda: len(self.files))
        if (receivers := self.receivers) is not None:
            metrics.watch("updraft_writer_receivers", "Receivers that serve.", lambda: len(receivers.open_calls))
            receivers.on_restart = metrics.receiver_restarts.inc
        if isinstance(self._gpu, Gpu):
            turn, staging, library_bytes = self._gpu.admission, self._gpu.staging, self._library_bytes
            metrics.watch(
                "updraft_writer_gpu_bytes", "GPU memory that files can share.", lambda: turn.limits.memory_bytes
            )
            metrics.watch("updraft_writer_gpu_held_bytes", "GPU memory that files hold.", lambda: turn.held_bytes)
            metrics.watch("updraft_writer_gpu_waiting", "Row groups that wait for the GPU.", lambda: turn.waiting)
            metrics.watch(
                "updraft_writer_gpu_pinned_bytes",
                "Host memory pinned for the GPU: the blocks of row groups, and the most that its library may pin.",
                lambda: library_bytes + staging.pinned_bytes,
            )

    async def _publish_health(self, *, serving: bool) -> None:
        await self._health.publish([WHOLE_SERVICE, FLIGHT_SERVICE_NAME], serving=serving)

    def _announce(self) -> None:
        _log.info(
            "writer is ready",
            **self._listeners.addresses,
            writer=os.getpid(),
            roots=[str(Root.parse(root)) for root in self._settings.root],
            encoder=described(self._gpu),
        )
        path = self._settings.ready_file
        if path is not None:
            ReadyFile(path, lambda: {**self._listeners.addresses, "writer": os.getpid()}).update()


def _quota_limits(settings: ServeSettings, *, pinned_bytes: int, receivers_bytes: int) -> QuotaLimits:
    quota_bytes = settings.quota_bytes
    if quota_bytes:
        _log.info("the quota is set", quota_bytes=quota_bytes, pinned_bytes=pinned_bytes)
    else:
        base_bytes = resident_bytes() + receivers_bytes
        computed = default_quota(memory_limits(), base_bytes=base_bytes, pinned_bytes=pinned_bytes)
        _log.info("the quota is computed", **computed)
        quota_bytes = computed["quota_bytes"]
    return QuotaLimits(quota_bytes=quota_bytes, own_bytes=own_room(quota_bytes))


async def _serve(settings: ServeSettings, heartbeat: Heartbeat | None) -> None:
    writer = Writer(settings)
    beating = asyncio.create_task(keep_beating(heartbeat)) if heartbeat is not None else None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, writer.lifecycle.handle, Event.DRAIN_REQUESTED)
    try:
        await writer.run()
    finally:
        if beating is not None:
            beating.cancel()


def serve(settings: ServeSettings, heartbeat: Heartbeat | None = None) -> None:
    """Serve in this process until a drain has ended. If the writer cannot start, exits with 2 and a line on stderr.

    Args:
        settings: All settings, with free ports.
        heartbeat: Heartbeat that shows the supervisor that the event loop runs; None if there is no supervisor.
    """
    import uvloop

    log_to_stderr(log_format=settings.log_format, level=settings.log_level, process="writer")
    try:
        uvloop.run(_serve(settings, heartbeat))
    except StartError as error:
        sys.stderr.write(f"updraft-writer: cannot start: {error}\n")
        sys.exit(2)
    # Python's own exit would wait for every thread, and a thread in a call to a hanging storage never ends.
    atexit._run_exitfuncs()
    os._exit(0)
