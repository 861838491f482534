# SPDX-License-Identifier: Apache-2.0
"""Simulated pod: the real admission, turns, pool, tokens, verdict and hold-back, with simulated streams and workers.

The relay is simulated too (`_relay`): it executes the steps of `updraft_server.front.exchange` in the same order.
"""

from __future__ import annotations

import asyncio
import enum
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from tests.simulation.client.recovery import Failure, Kind, Origin
from tests.simulation.invariants import Checker
from tests.simulation.messages import Admitted, Answer, Finish, Open, Refused, Schema, Sent
from tests.simulation.network import Stream
from tests.simulation.token_file import TokenFile
from tests.simulation.virtual_loop import Process
from tests.simulation.workers_side import WorkerGone, WorkerProcess, WorkersSide
from tests.simulation.world import World
from updraft.errors import (
    DeadlineError,
    PoolBusyError,
    PoolFullError,
    PoolUnavailableError,
    ProtocolError,
    UnauthenticatedError,
    UpdraftError,
    WorkerError,
)
from updraft.service.security import BearerTokens, SecurityError
from updraft.service.tenants import Caps
from updraft_server.front.limits.deaths import ALLOWED_DEATHS, HoldBack
from updraft_server.front.limits.verdict import LastMemoryUse, verdict
from updraft_server.front.queue.admission import RETRY_AFTER_MILLISECONDS, Admission, AdmissionLimits
from updraft_server.front.queue.place import Grant
from updraft_server.front.relay.batch_limits import BatchTimeout
from updraft_server.front.relay.relay import RelayEnd
from updraft_server.pool.interface import until
from updraft_server.pool.leases import LeaseOutcome, Owner, PoolError, PoolSettings
from updraft_server.pool.pool import Pool

# Time for which the relay waits for a worker's exit status, as the real relay does.
_EXIT_STATUS_SECONDS = 2.0

_KINDS: tuple[tuple[type[UpdraftError], Kind], ...] = (
    (PoolBusyError, Kind.POOL_BUSY),
    (PoolFullError, Kind.POOL_FULL),
    (PoolUnavailableError, Kind.POOL_UNAVAILABLE),
    (WorkerError, Kind.WORKER),
    (DeadlineError, Kind.DEADLINE),
    (ProtocolError, Kind.PROTOCOL),
    (UnauthenticatedError, Kind.UNAUTHENTICATED),
)


class PodState(enum.Enum):
    """State of a pod: DOWN -> STARTING -> READY -> DRAINING -> DOWN; a crash leads to DOWN from any state."""

    DOWN = "down"
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class PodSettings:
    """Size and limits of a pod."""

    workers: int = 2
    fresh_workers: int = 0
    queue_limit: int = 64
    queue_bytes: int = 1 << 20
    idle_seconds: float = 600.0
    drain_timeout_seconds: float = 60.0
    batch_timeout_seconds: float = 30.0
    fork_seconds: float = 0.005
    ready_seconds: float = 0.3


class _Gone(NamedTuple):
    """Event that the exchange's worker has ended."""


class _Interrupted(NamedTuple):
    """Event that the front ends the exchange with an error."""

    error: UpdraftError


@dataclass(frozen=True, slots=True)
class _Request:
    """Parts of a request that hold-back and verdict read."""

    is_session: bool
    payload: bytes
    function_sha256: bytes = b""
    function: str = "f"
    version: str = "1"
    is_batched: bool = False
    subject: str = "the function f"


class Pod:
    """Pod of a pool, including all its restarts. Each restart uses another address."""

    def __init__(
        self,
        world: World,
        checker: Checker,
        name: str,
        zone: int,
        settings: PodSettings,
        caps: Caps,
        token_file: TokenFile,
    ) -> None:
        self.world = world
        self.name = name
        self.zone = zone
        self.settings = settings
        self.state = PodState.DOWN
        self.address = 0
        self.cancels_next_grant = False
        """Whether to cancel the next exchange to which the pod grants a worker, at the same moment."""
        self.slowness = 1.0
        """Factor by which everything that the pod's workers do takes longer."""
        self.on_failed_start: Callable[[], None] = lambda: None
        """Callback that starts the pod again, as Kubernetes does."""
        self.side: WorkersSide | None = None
        self.admission: Admission
        self.pool: Pool
        self._batch_timeout = BatchTimeout.effective(settings.batch_timeout_seconds)
        self._checker = checker
        self._caps = caps
        self._token_file = token_file
        self._tokens: BearerTokens
        self._process: Process
        self._running: dict[Stream, None] = {}
        self._draining: asyncio.Event

    def boot(self, address: int, on_ready: Callable[[], None]) -> None:
        """Start the pod under a new address."""
        self.state, self.address, self.side = PodState.STARTING, address, None
        self._process = Process(f"{self.name}@{address}")
        self._process.run(lambda: self.world.loop.create_task(self._live(on_ready)))

    def drain(self) -> None:
        """Accept no new exchanges; end when the running exchanges have ended."""
        if self.state is PodState.READY:
            self.state = PodState.DRAINING
            self._checker.drained(self)
            self._draining.set()

    def crash(self) -> None:
        """End the pod at once, as a lost node does."""
        if self.state is PodState.DOWN:
            return
        self.state = PodState.DOWN
        self._checker.pod_ended(self)
        self._process.crash()
        for stream in list(self._running):
            stream.break_now()
        self._running.clear()
        if self.side is not None:
            self.side.crash()

    @property
    def is_ready(self) -> bool:
        return self.state is PodState.READY

    @property
    def is_listening(self) -> bool:
        """Whether the pod accepts connections."""
        return self.state in (PodState.READY, PodState.DRAINING)

    @property
    def streams(self) -> list[Stream]:
        """Calls that this pod serves."""
        return list(self._running)

    async def _live(self, on_ready: Callable[[], None]) -> None:
        settings = self.settings
        self._draining = asyncio.Event()
        self.side = WorkersSide(
            self.world,
            f"{self.name}@{self.address}",
            fork_seconds=settings.fork_seconds,
            ready_seconds=settings.ready_seconds,
        )
        self.pool = Pool(
            PoolSettings(
                workers=settings.workers,
                zygotes=cast(Any, self.side),
                fresh_workers=settings.fresh_workers,
                idle_seconds=settings.idle_seconds,
            ),
            lambda _line: None,
            lambda _drop: None,
        )
        self.admission = Admission(
            self.pool,
            AdmissionLimits(settings.queue_limit, settings.queue_bytes, RETRY_AFTER_MILLISECONDS),
            self._caps,
        )
        self._hold_back = HoldBack(ALLOWED_DEATHS, clock=self.world.loop.time)
        self._memory = LastMemoryUse()
        try:
            self._tokens = BearerTokens(cast(Any, self._token_file), self.world.loop.time)
            await self.pool.start()
        except (PoolError, SecurityError) as error:
            self.world.note(self.name, "does not start:", error)
            self.crash()
            self.on_failed_start()
            return
        self.state = PodState.READY
        self._checker.pod_started(self)
        self.world.note(self.name, "ready at", self.address)
        on_ready()
        await self._draining.wait()
        self.world.note(self.name, "drains")
        self.admission.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(settings.drain_timeout_seconds):
                await until(self.pool, lambda: not self.pool.busy)
        for stream in list(self._running):
            stream.deliver(_Interrupted(PoolUnavailableError("the pool is draining and ended the exchange")))
        await asyncio.sleep(1.0)
        await self.pool.close(0.0)
        self.world.note(self.name, "has drained")
        self.crash()

    def accept(self, stream: Stream, command: Open) -> None:
        """Serve a call."""
        self._running[stream] = None
        stream.server = self._process.run(lambda: self.world.loop.create_task(self._serve(stream, command)))
        stream.server.add_done_callback(self._served)

    def _served(self, served: asyncio.Task[None]) -> None:
        if not served.cancelled() and (error := served.exception()) is not None:
            self._checker.fail(f"{self.name} raised {error!r}")

    async def _serve(self, stream: Stream, command: Open) -> None:
        try:
            await self._admitted(stream, command)
        except UpdraftError as error:
            kind = next((kind for of, kind in _KINDS if isinstance(error, of)), Kind.INTERNAL)
            self.world.note(self.name, stream.name, "refused", kind.value)
            is_in_band = kind is not Kind.UNAUTHENTICATED
            hint = error.retry_after_milliseconds if isinstance(error, PoolFullError) else None
            stream.reply(Refused(Failure(kind, Origin.POOL, is_in_band=is_in_band), hint))
        finally:
            self._running.pop(stream, None)

    async def _admitted(self, stream: Stream, command: Open) -> None:
        """Wait for a worker and relay messages, in the order of `updraft_server.front.exchange.Exchanges._run`."""
        self._check_token(command)
        if self.state not in (PodState.READY, PodState.DRAINING):
            raise PoolUnavailableError("the pool has not started")
        owner = command.binding.owner or Owner(command.tenant, command.task.application_id, "")
        request = cast(Any, _Request(command.binding.owner is not None, str(command.binding).encode()))
        if command.refuse_if_busy:
            self.admission.check_free(command.tenant, command.task)
        with self.admission.place(command.tenant, command.task, command.held_bytes) as place:
            if command.artifact_seconds:
                await place.unless_lost(asyncio.sleep(command.artifact_seconds))
            self._hold_back.check(owner, request)
            self._checker.waits(self, stream, command, place)
            place.granted.add_done_callback(lambda _granted: self._is_granted(stream))
            try:
                may_wait = not command.refuse_if_busy or bool(command.artifact_seconds)
                grant = await self.admission.worker(place, command.binding, may_wait=may_wait)
            finally:
                self._checker.waits_no_more(self, stream)
        self._checker.granted(self, stream, command, cast(Any, grant.lease))
        outcome = LeaseOutcome.BROKEN
        try:
            try:
                self._hold_back.check(owner, request)
                self._check_token(command)
            except UpdraftError:
                outcome = LeaseOutcome.CLEAN
                raise
            self._checker.runs(self, command)
            outcome = await self._relay(stream, command, grant)
        except asyncio.CancelledError:
            outcome = LeaseOutcome.CANCELLED
            raise
        except WorkerGone:
            raise await self._verdict(grant, request, owner) from None
        finally:
            self._checker.released(self, stream)
            grant.release(outcome)
            if outcome is LeaseOutcome.CLEAN:
                self._hold_back.succeeded(owner, request)

    def _is_granted(self, stream: Stream) -> None:
        if self.cancels_next_grant:
            self.cancels_next_grant = False
            stream.break_now()
            if stream.server is not None:
                stream.server.cancel()

    async def _relay(self, stream: Stream, command: Open, grant: Grant) -> LeaseOutcome:
        process: WorkerProcess = cast(Any, grant.lease.socket).process
        self._checker.assigned(self, process, command)
        process.has_work_left = True
        process.on_gone = lambda: stream.deliver(_Gone())
        batches = rows = 0
        try:
            if not process.is_alive:
                raise WorkerGone
            stream.reply(Admitted())
            stream.reply(Schema())
            while True:
                match await stream.receive():
                    case Sent() as sent:
                        if sent.sequence != batches + 1:
                            raise ProtocolError(f"batch {sent.sequence} came where {batches + 1} was expected")
                        await self._worked(process, sent)
                        batches, rows = batches + 1, rows + sent.batch.rows
                        stream.reply(Answer(batches, sent.batch.rows, batches, sent.batch.content))
                    case Finish() as finish:
                        if finish != (batches, rows):
                            raise ProtocolError("the totals disagree")
                        stream.reply(finish)
                        process.has_work_left = False
                        return LeaseOutcome.CLEAN
                    case _Gone():
                        raise WorkerGone
                    case _Interrupted(error):
                        raise error
        finally:
            process.on_gone = lambda: None

    async def _worked(self, process: WorkerProcess, sent: Sent) -> None:
        work = sent.work
        if work.kills:
            self.world.later(work.seconds / 2, lambda: process.die(-signal.SIGSEGV))
        if work.hangs:
            process.is_stuck = True
        try:
            async with asyncio.timeout(self.settings.batch_timeout_seconds):
                await process.work(work.seconds * self.slowness)
        except TimeoutError:
            process.die(-signal.SIGALRM)
            raise WorkerGone from None

    async def _verdict(self, grant: Grant, request: Any, owner: Owner) -> UpdraftError:
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_STATUS_SECONDS):
                await asyncio.shield(grant.lease.death)
        death = grant.lease.death.result() if grant.lease.death.done() else None
        end = RelayEnd(request, grant.lease.worker, self._batch_timeout, lost_worker=True)
        found = verdict(WorkerError("the worker ended"), end, death, self._memory)
        if found.blames_function:
            self._hold_back.died(owner, request)
        return found.error

    def _check_token(self, command: Open) -> None:
        self._tokens.check(f"Bearer {command.token}")
