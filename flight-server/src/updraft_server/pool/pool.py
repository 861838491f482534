# SPDX-License-Identifier: Apache-2.0
"""The pool as the front sees it: workers that are leased to exchanges, one each, and healed by the zygote.

`updraft_server.front.admission` queues in front of it; `updraft_server.zygote.process` forks what it asks for;
`pooled_worker` is one worker. Nothing here knows gRPC or Arrow.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence

import structlog

from updraft_server.ipc.frames import FrameError
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.ipc.zygote_packets import Exited
from updraft_server.pool.leases import (
    Lease,
    LeaseOutcome,
    NoIdleWorker,
    PoolError,
    PoolSettings,
    RegisteredFunctionInfo,
    TaskKey,
    WorkerInfo,
)
from updraft_server.pool.spares import SpareWorkers
from updraft_server.pool.start_pace import StartPace
from updraft_server.pool.worker import EXIT_REASONS, PooledWorker, WorkerState
from updraft_server.pool.worker_events import DroppedOutput, WorkerDeath, WorkerOutput
from updraft_server.pool.zygote_client import ZygoteClient, ZygoteError

__all__ = [
    "DroppedOutput",
    "Lease",
    "LeaseOutcome",
    "NoIdleWorker",
    "Pool",
    "PoolError",
    "PoolSettings",
    "RegisteredFunctionInfo",
    "TaskKey",
    "WorkerDeath",
    "WorkerInfo",
    "WorkerOutput",
]

_log = structlog.get_logger(__name__)

_RECONNECT_SECONDS = 0.05
_LAST_DEATHS_SECONDS = 2.0
# How often a front says that it waits for the workers' side.
_COMPLAINT_SECONDS = 10.0
# How often the memory of workers is looked up: the zygote reads all of /proc for it.
_MEASUREMENT_SECONDS = 10.0
_MEASUREMENT_TIMEOUT_SECONDS = 5.0


class _WorkerLease(Lease):
    def __init__(
        self,
        worker: PooledWorker,
        task: TaskKey | None,
        on_release: Callable[["_WorkerLease", LeaseOutcome], None],
    ) -> None:
        self.held = worker
        self.task = task
        self.worker = worker.id
        self.socket = worker.socket
        self.death = worker.death
        self.log_context = {}
        worker.works_for(self.log_context)
        self._on_release: Callable[[_WorkerLease, LeaseOutcome], None] | None = on_release

    def release(self, outcome: LeaseOutcome) -> None:
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release(self, outcome)


class Pool:
    """The workers of one environment, as one front holds them. Used from one event loop."""

    def __init__(
        self,
        settings: PoolSettings,
        on_output: Callable[[WorkerOutput], None] | None = None,
        on_drop: Callable[[DroppedOutput], None] | None = None,
    ) -> None:
        self.idle = 0
        self.busy = 0
        self.starting = 0
        self.functions: Sequence[RegisteredFunctionInfo] = ()
        self.python_version = ""
        self.pyspark_version = ""
        self.zygote_pid = 0
        self.exits = dict.fromkeys(EXIT_REASONS, 0)
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop
        self._on_output = on_output or _ignore
        self._on_drop = on_drop or _ignore
        self._subscribers: list[Callable[[], None]] = []
        self._workers: dict[str, PooledWorker] = {}
        self._leases: set[_WorkerLease] = set()
        self._spares = SpareWorkers(settings.workers, settings.spare_seconds, self._discard)
        self._zygote: ZygoteClient | None = None
        self._keepers: list[asyncio.Task[None]] = []
        self._starts: set[asyncio.Task[PooledWorker]] = set()
        self._wake = asyncio.Event()
        self._start_pace = StartPace(settings.workers)
        self._last_failure = ""
        self._extra_starts = 0
        self._closing = False
        self._next_complaint_seconds = 0.0

    async def start(self) -> None:
        """Return when all workers are warm; raises PoolError when the zygote cannot start them."""
        self._loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        unsubscribe = self.subscribe(changed.set)
        self._keepers = [asyncio.create_task(self._keep()), asyncio.create_task(self._keep_measuring())]
        try:
            async with asyncio.timeout(self._settings.start_timeout_seconds):
                while self.idle + self.busy < self._settings.workers:
                    changed.clear()
                    await changed.wait()
                    if self._start_pace.is_hopeless:
                        raise PoolError(f"workers do not start: {self._last_failure}")
        except TimeoutError:
            raise PoolError(
                f"{self.idle} of {self._settings.workers} workers were ready within"
                f" {self._settings.start_timeout_seconds:g} seconds:"
                f" {self._last_failure or 'the rest is still starting'}"
            ) from None
        finally:
            unsubscribe()

    @property
    def workers(self) -> Sequence[WorkerInfo]:
        """The workers that live. May be read from any thread."""
        return tuple(
            WorkerInfo(worker.id, worker.pid, worker.state.value, worker.usage.memory_bytes if worker.usage else None)
            for worker in tuple(self._workers.values())
        )

    async def measure(self, workers: Sequence[str]) -> Mapping[str, WorkerUsage]:
        """What each of these workers uses now; nothing of one that has ended or that the zygote cannot tell about."""
        if self._zygote is None:
            return {}
        try:
            async with asyncio.timeout(_MEASUREMENT_TIMEOUT_SECONDS):
                usage = await self._zygote.measure(workers)
        except (ZygoteError, TimeoutError):
            return {}
        for name, used in usage.items():
            if (worker := self._workers.get(name)) is not None:
                worker.usage = used
        return usage

    async def lease(self, task: TaskKey | None, binding: str = "") -> Lease:
        """An idle worker at once, or an extra one for a task that holds one already; raises NoIdleWorker, PoolError.

        A worker that has once been leased with a `binding` serves no other: modules of a session cannot be unloaded.
        """
        if self._closing:
            raise PoolError("the pool is closing")
        held = sum(lease.task == task for lease in self._leases) if task is not None else 0
        if 0 < held < self._settings.workers_per_task:
            spare = self._spares.take(lambda worker: worker.binding in (binding, ""))
            if spare is not None:
                return self._lease(spare, task, binding)
        idle = [worker for worker in self._workers.values() if worker.state is WorkerState.IDLE]
        fitting = [worker for worker in idle if worker.binding in (binding, "")]
        if fitting:
            known = [worker for worker in fitting if worker.binding == binding]
            return self._lease((known or fitting)[-1], task, binding)
        if not held:
            self._replace_one_of(idle)
            raise NoIdleWorker("no idle worker can take the session" if idle else "all workers are busy")
        if held >= self._settings.workers_per_task:
            raise NoIdleWorker(f"the task holds {held} workers, which is as many as one may")
        return self._lease(await self._start_extra(), task, binding)

    def _replace_one_of(self, idle: Sequence[PooledWorker]) -> None:
        """Give a worker of another session up for a fresh one, one at a time: who waits is told when it is there."""
        if idle and not self._starts and not self._missing():
            self._discard(idle[0])
            self._wake.set()
            self._changed()

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every change of idle, busy or starting; returns what ends the subscription."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._subscribers.remove(callback)

        return unsubscribe

    async def close(self, grace_seconds: float) -> None:
        """Start nothing more, wait for leases to end, then kill what is left."""
        self._closing = True
        self._wake.set()
        changed = asyncio.Event()
        unsubscribe = self.subscribe(changed.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                while self._leases:
                    changed.clear()
                    await changed.wait()
        unsubscribe()
        await self._stop_keeping()
        self._spares.clear()
        for worker in list(self._workers.values()):
            worker.kill()
            worker.close_socket()
        if self._workers:
            await asyncio.wait([worker.death for worker in self._workers.values()], timeout=_LAST_DEATHS_SECONDS)
        if self._zygote is not None:
            self._zygote.close()

    async def _stop_keeping(self) -> None:
        tasks = [*self._starts, *self._keepers]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _keep(self) -> None:
        """Keep the configured number of workers alive: the only place that starts them unasked."""
        while not self._closing:
            self._wake.clear()
            try:
                await self._connect()
            except ZygoteError as error:
                await self._wait_for_workers_side(error)
                continue
            for _ in range(self._missing()):
                if self._promote_spare():
                    continue
                await self._pace()
                if self._zygote is None:
                    # First a successor: it ends the workers that this front does not claim in time.
                    break
                self._begin_start()
            await self._wake.wait()

    async def _wait_for_workers_side(self, error: ZygoteError) -> None:
        self._last_failure = str(error)
        now = self._loop.time()
        if now >= self._next_complaint_seconds:
            self._next_complaint_seconds = now + _COMPLAINT_SECONDS
            _log.warning("the workers' side is away: it is tried again and again", reason=str(error))
        await asyncio.sleep(_RECONNECT_SECONDS)

    async def _keep_measuring(self) -> None:
        while True:
            await asyncio.sleep(_MEASUREMENT_SECONDS)
            await self.measure(tuple(self._workers))

    async def _pace(self) -> None:
        delay = self._start_pace.next_start_after(self._loop.time())
        if delay > 0:
            _log.warning("workers die or fail to start: the next start waits", seconds=round(delay, 2))
            await asyncio.sleep(delay)

    async def _connect(self) -> None:
        if self._zygote is not None:
            return
        zygote, hello = await ZygoteClient.connect(
            self._settings.zygote_socket, self._exited, self._zygote_lost, self._settings.start_timeout_seconds
        )
        if zygote.is_closed:
            raise ZygoteError("the zygote has gone away")
        if self._next_complaint_seconds:
            self._next_complaint_seconds = 0.0
            _log.info("the workers' side is back")
        self._zygote = zygote
        zygote.claim(tuple(self._workers))
        for worker in self._workers.values():
            if worker.was_killed:
                zygote.kill(worker.id)
        self.python_version = hello.python_version
        self.pyspark_version = hello.pyspark_version
        self.zygote_pid = hello.pid
        self.functions = tuple(RegisteredFunctionInfo(*function) for function in hello.functions)
        self._changed()

    def _kill(self, worker: str) -> None:
        # Without a zygote its successor is told (`_connect`).
        if self._zygote is not None:
            self._zygote.kill(worker)

    def _zygote_lost(self) -> None:
        self._zygote = None
        self._wake.set()

    def _missing(self) -> int:
        living = sum(worker.state in (WorkerState.IDLE, WorkerState.LEASED) for worker in self._workers.values())
        return max(0, self._settings.workers - living - len(self._starts))

    def _promote_spare(self) -> bool:
        """Let a spare take the place of a worker that died, if there is one."""
        spare = self._spares.take()
        if spare is None:
            return False
        spare.state = WorkerState.IDLE
        self._changed()
        return True

    def _begin_start(self) -> None:
        start = asyncio.create_task(self._start_worker())
        self._starts.add(start)
        start.add_done_callback(self._start_ended)
        self._changed()

    def _start_ended(self, start: asyncio.Task[PooledWorker]) -> None:
        self._starts.discard(start)
        if start.cancelled():
            return
        error = start.exception()
        if error is None:
            self._start_pace.succeeded()
            worker = start.result()
            if worker.state is WorkerState.STARTING:
                worker.state = WorkerState.IDLE
        else:
            # That a zygote is gone says nothing about workers: its successor may start them.
            if self._zygote is not None:
                self._start_pace.failed()
            self._last_failure = str(error)
            _log.warning("a worker did not start", reason=str(error))
        self._wake.set()
        self._changed()

    async def _start_worker(self) -> PooledWorker:
        """Fork a worker and wait until it is ready; raises PoolError."""
        if self._zygote is None:
            raise PoolError("the zygote is being restarted")
        worker: PooledWorker | None = None
        limit_seconds = self._settings.fork_timeout_seconds
        try:
            async with asyncio.timeout(limit_seconds):
                worker = PooledWorker(
                    await self._zygote.fork(),
                    self._settings.output_lines_per_second,
                    self._on_output,
                    self._on_drop,
                    self._ended,
                    self._kill,
                )
                self._workers[worker.id] = worker
                worker.death.add_done_callback(self._died(worker))
                await worker.ready()
        except BaseException as error:
            if worker is not None:
                self._discard(worker)
            if isinstance(error, TimeoutError):
                raise PoolError(f"a new worker was not ready within {limit_seconds:g} seconds") from None
            if isinstance(error, ZygoteError | FrameError):
                raise PoolError(str(error)) from error
            raise
        return worker

    async def _start_extra(self) -> PooledWorker:
        self._extra_starts += 1
        self._changed()
        try:
            return await self._start_worker()
        finally:
            self._extra_starts -= 1

    def _lease(self, worker: PooledWorker, task: TaskKey | None, binding: str) -> Lease:
        worker.state = WorkerState.LEASED
        worker.binding = binding
        lease = _WorkerLease(worker, task, self._released)
        self._leases.add(lease)
        self._changed()
        return lease

    def _released(self, lease: _WorkerLease, outcome: LeaseOutcome) -> None:
        worker = lease.held
        self._leases.discard(lease)
        worker.works_for({})
        is_reusable = outcome is LeaseOutcome.CLEAN and worker.state is WorkerState.LEASED
        if not is_reusable or self._closing:
            self._discard(worker)
        elif self._is_surplus():
            self._spares.keep(worker)
        else:
            worker.state = WorkerState.IDLE
        self._wake.set()
        self._changed()

    def _is_surplus(self) -> bool:
        """True when an extra worker is over: the pool has more than configured."""
        living = sum(worker.state in (WorkerState.IDLE, WorkerState.LEASED) for worker in self._workers.values())
        return living > self._settings.workers

    def _discard(self, worker: PooledWorker) -> None:
        worker.kill()
        worker.state = WorkerState.DEAD
        worker.close_socket()

    def _ended(self, worker: PooledWorker) -> None:
        """A worker is gone; how will be known in a moment, but its replacement need not wait."""
        self._spares.forget(worker)
        if not any(lease.held is worker for lease in self._leases):
            worker.close_socket()
        self._wake.set()
        self._changed()

    def _died(self, worker: PooledWorker) -> Callable[[asyncio.Future[WorkerDeath]], None]:
        def forget(death: asyncio.Future[WorkerDeath]) -> None:
            self.exits[worker.reason_of(death.result())] += 1
            self._workers.pop(worker.id, None)
            self._changed()

        return forget

    def _exited(self, packet: Exited) -> None:
        worker = self._workers.get(packet.worker)
        if worker is not None:
            worker.exited(WorkerDeath(packet.exit_code, packet.signal))

    def _changed(self) -> None:
        self.idle = sum(worker.state is WorkerState.IDLE for worker in self._workers.values())
        self.busy = len(self._leases)
        self.starting = len(self._starts) + self._extra_starts
        for callback in list(self._subscribers):
            callback()


def _ignore(_: WorkerOutput | DroppedOutput) -> None:
    """Where nobody wants the output."""
