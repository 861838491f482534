# SPDX-License-Identifier: Apache-2.0
"""Pool as the front uses it: it leases each worker to one exchange at a time, and replaces workers that end.

Exchanges wait for a worker in `updraft_server.front.queue`. `updraft_server.zygote.process` forks the pool's workers,
and `worker` is the front's record of one worker. This package uses neither gRPC nor Arrow.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from updraft.v1.control_pb2 import FunctionDescription
from updraft_server.ipc.function_list import UNLISTED
from updraft_server.ipc.model_packets import ModelUsage
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.ipc.zygote_packets import Continue, Exited, Kill, ShowStack, Sweep
from updraft_server.pool import leases
from updraft_server.pool.bindings import REGISTERED, Binding
from updraft_server.pool.interface import until
from updraft_server.pool.models import PooledModels
from updraft_server.pool.worker import EXIT_REASONS, PooledWorker, WorkerState
from updraft_server.pool.worker_events import DroppedOutput, LogContext, WorkerDeath, WorkerOutput
from updraft_server.pool.worker_output import Outputs
from updraft_server.pool.worker_starts import WorkerStarts
from updraft_server.pool.workers import LAST_DEATHS_SECONDS, PooledWorkers, WorkerLease, share_memory
from updraft_server.pool.zygote_client import ZygoteClient, ZygoteError, ZygoteLostError
from updraft_server.sandbox_layers import SandboxLayer

_MEASUREMENT_TIMEOUT_SECONDS = 5.0


class Pool:
    """Workers of one environment, as one front holds them. Used from one event loop."""

    def __init__(
        self,
        settings: leases.PoolSettings,
        on_output: Callable[[WorkerOutput], None],
        on_drop: Callable[[DroppedOutput], None],
    ) -> None:
        self.idle = self.busy = self.starting = self.fresh = 0
        self.functions: Sequence[FunctionDescription] = ()
        self.unlisted: Sequence[FunctionDescription] = ()
        self.python_version = ""
        self.memory_limit_bytes = 0
        self.pyspark_version = ""
        self.zygote_pid = 0
        self.sandbox: Sequence[SandboxLayer] = ()
        self.exits = dict.fromkeys(EXIT_REASONS, 0)
        self._settings = settings
        self._outputs = Outputs(settings.output_lines_per_second, on_output, on_drop)
        self._subscribers: list[Callable[[], None]] = []
        self._workers = PooledWorkers(settings, lambda packet: self._zygote.send(packet), self._heal)
        self.resting = self._workers.resting
        self._wake = asyncio.Event()
        self._models = PooledModels(self._outputs, self._changed)
        self._zygote = ZygoteClient(
            settings.zygotes,
            self._exited,
            self._lost,
            self._models.take,
            self._models.retire,
            self._changed,
            self.resting.went_on,
        )
        self._keepers: list[asyncio.Task[None]] = []
        self._starts = WorkerStarts(settings.workers, self._start_worker, self._heal)
        # Numbers of extra workers that are being started for each task. Several exchanges of a task may request extra
        # workers at the same time.
        self._extra_of_tasks: Counter[leases.TaskKey | None] = Counter()
        self._closing = False
        self.generation = 0

    async def start(self) -> None:
        """Return when all workers are warm; raises PoolError if the zygote cannot start them."""
        keepers = self._keep(), self._models.keep_measuring(self.measure_models)
        self._keepers = [asyncio.create_task(keeper) for keeper in keepers]
        wanted = self._settings.workers
        left_seconds = limit_seconds = self._settings.start_timeout_seconds
        while not await self._are_there_within(left_seconds):
            # Do not count time in which a zygote loads, because the supervisor ends a zygote that hangs.
            left_seconds = limit_seconds - self._zygote.seconds_since_loading
            if left_seconds <= 0:
                reason = self._zygote.trouble or self._starts.last_failure or "the rest is still starting"
                raise leases.PoolError(
                    f"{self.idle} of {wanted} workers were ready within {limit_seconds:g} seconds: {reason}"
                )
        if self._starts.are_hopeless:
            raise leases.PoolError(f"workers do not start: {self._starts.last_failure}")

    async def _are_there_within(self, seconds: float) -> bool:
        """Wait until all configured workers run, or the pool gives up starting them; returns False on a timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await until(self, lambda: self.idle + self.busy >= self._settings.workers or self._starts.are_hopeless)
                return True
        return False

    @property
    def reload_fault(self) -> str:
        """Why the pool refused the last reload and still runs the older functions; empty otherwise."""
        return self._zygote.reload_fault

    @property
    def refused_reloads(self) -> int:
        """Number of reloads that the pool has refused."""
        return self._zygote.refused_reloads

    @property
    def quiet(self) -> int:
        """Number of idle workers that use no CPU."""
        return sum(not self.resting.is_computing(worker.id) for worker in self._workers.in_state(WorkerState.IDLE))

    @property
    def computing(self) -> int:
        """Number of workers that use CPU, with and without an exchange."""
        return self.busy + self.resting.computing

    @property
    def workers(self) -> Sequence[leases.WorkerInfo]:
        """Living workers. May be read from any thread."""
        return self._workers.infos()

    async def measure(self, workers: Sequence[str]) -> Mapping[str, WorkerUsage]:
        """Return what each of these workers uses now, without those that have ended or cannot be measured."""
        try:
            async with asyncio.timeout(_MEASUREMENT_TIMEOUT_SECONDS):
                usage = await self._zygote.measure(workers)
        except (ZygoteError, TimeoutError):
            return {}
        for name, used in usage.items():
            if (worker := self._workers.by_id.get(name)) is not None:
                worker.usage = used
        return usage

    async def stack(self, worker: str) -> str | None:
        """Return the Python stacks of all threads of a worker or model process.

        The text is empty if the process does not answer. Returns None if the process has ended.
        """
        found = self._workers.by_id.get(worker)
        if found is None:
            return await self._models.stack(worker, lambda name: self._zygote.send(ShowStack(name)))
        self.resting.wake(found)
        return await found.stack()

    async def lease(
        self, task: leases.TaskKey | None, binding: Binding = REGISTERED, *, leave_fresh: int = 0
    ) -> leases.Lease:
        """Lease an idle worker, or an extra worker if the task holds a worker; raises NoIdleWorker and PoolError.

        A worker serves one owner as long as it lives (`updraft_server.pool.bindings`). If no idle worker can serve this
        owner, a spare or fresh worker replaces an idle worker. The call uses a fresh worker only if the pool has more
        than `leave_fresh` fresh workers, or as many fresh workers as configured.
        """
        if self._closing:
            raise leases.PoolError("the pool is closing")
        held = self._workers.held_by(task) + self._extra_of_tasks[task]
        may_have_more = 0 < held < self._settings.workers_per_task and not self._has_most_extra_workers
        spare = self._workers.best(WorkerState.SPARE, binding) if may_have_more else None
        if spare is not None:
            return self._lease(spare, task, binding)
        known = self._workers.best(WorkerState.IDLE, binding)
        if known is not None or not held:
            other = None if known is not None else self._workers.victim()
            lease = self._lease(known or self._in_place_of(other, binding, leave_fresh), task, binding)
            if share_memory(self.sandbox):
                await lease.wait_for_deaths([other] if other else self._workers.leaving(lease, binding))
            return lease
        if held >= self._settings.workers_per_task:
            raise leases.NoIdleWorker(f"the task holds {held} workers, the maximum for one task")
        return await self.lease_extra(task, binding)

    async def lease_idle(self, binding: Binding) -> leases.Lease:
        """Lease an idle worker that serves no other owner; raises NoIdleWorker and PoolError."""
        if self._workers.best(WorkerState.IDLE, binding) is None:
            raise leases.NoIdleWorker("no idle worker can serve the owner")
        return await self.lease(None, binding)

    async def lease_extra(self, task: leases.TaskKey | None, binding: Binding = REGISTERED) -> leases.Lease:
        """Start and lease a worker beyond the configured number; raises NoIdleWorker and PoolError."""
        if self._closing:
            raise leases.PoolError("the pool is closing")
        if self._has_most_extra_workers:
            raise leases.NoIdleWorker(f"there are {self._workers.surplus} extra workers, the maximum for the pool")
        self._extra_of_tasks[task] += 1
        try:
            lease = self._lease(await self._starts.start_extra(), task, binding)
        except ZygoteLostError as error:
            # The lost zygote's successor may start a worker.
            raise leases.NoIdleWorker(str(error)) from None
        finally:
            self._extra_of_tasks[task] -= 1
            # Drop zero counts, which would accumulate over many tasks.
            self._extra_of_tasks += Counter()
        if share_memory(self.sandbox):
            await lease.wait_for_deaths(self._workers.leaving(lease, binding))
        return lease

    @property
    def _has_most_extra_workers(self) -> bool:
        return self._workers.surplus + self._starts.extra >= self._settings.most_extra_workers

    def _in_place_of(self, other: PooledWorker | None, binding: Binding, leave_fresh: int) -> PooledWorker:
        """Return a spare or fresh worker for `binding` in the place of another owner's idle worker.

        The idle worker normally becomes a spare. If no spare or fresh worker can be returned and no worker is starting,
        this method ends the idle worker, and the start of its replacement wakes the waiting exchanges. Raises
        NoIdleWorker if no worker can be returned now.
        """
        if other is None:
            raise leases.NoIdleWorker("all workers are busy")
        self._workers.absences.ended(binding.owner)
        substitute = self._workers.best(WorkerState.SPARE, binding)
        fresh = list(self._workers.in_state(WorkerState.FRESH))
        if substitute is None and len(fresh) > max(0, min(leave_fresh, self._settings.fresh_workers - 1)):
            substitute = fresh[0]
        if substitute is not None:
            # Mark the substitute as idle first, so that the limit on spares cannot end the substitute.
            substitute.state = WorkerState.IDLE
            # If workers share /dev/shm, the pool may not hold workers of several owners together.
            aside = self._workers.discard if share_memory(self.sandbox) else self._workers.set_aside
            aside(other)
            self._wake.set()
            return substitute
        if not self._starts.unasked and not self._workers.missing(self._starts.unasked):
            self._workers.discard(other)
            self._heal()
        raise leases.NoIdleWorker("no idle worker can serve the owner")

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every change of idle, busy or starting, until the returned function is called."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    async def close(self, grace_seconds: float) -> None:
        """Start nothing more, wait for leases to end, then kill the remaining workers."""
        self._closing = True
        self._wake.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await until(self, lambda: not self._workers.leases)
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await self._starts.stop()
        if deaths := self._workers.end_all():
            await asyncio.wait(deaths, timeout=LAST_DEATHS_SECONDS)
        self._zygote.close()
        self._models.close()

    async def _keep(self) -> None:
        """Keep the configured number of workers alive; only this loop starts workers without a request."""
        while not self._closing:
            self._wake.clear()
            if self._zygote.hello is None:
                await self._connect()
            while self._workers.missing(self._starts.unasked):
                await self._starts.pace()
                if self._zygote.hello is None:
                    # Connect to the next zygote first: that zygote ends workers that this front does not claim in time.
                    break
                if self._workers.missing(self._starts.unasked):
                    self._starts.begin()
            await self._wake.wait()

    @property
    def model_usage(self) -> Sequence[ModelUsage]:
        """Last measurement of each batched function."""
        return self._models.usage

    @property
    def model_faults(self) -> Mapping[tuple[str, str], str]:
        """Why batched functions cannot be called now, by name and version."""
        return self._models.faults

    async def measure_models(self) -> Sequence[ModelUsage]:
        """Measure the model processes; returns the last measurement if the zygote does not answer."""
        with contextlib.suppress(ZygoteError, TimeoutError):
            async with asyncio.timeout(_MEASUREMENT_TIMEOUT_SECONDS):
                self._models.measured(await self._zygote.measure_models())
        return self._models.usage

    def _lost(self) -> None:
        self._models.lost()
        # A retiring zygote continues its own stopped workers. The successor of a dead zygote continues the workers of
        # the dead zygote.
        self.resting.all_go_on()
        if any(function.batched for function in self._zygote.functions):
            # These workers cannot reach models any more. End them now, because a worker could receive an exchange
            # before it notices the loss.
            self._workers.discard_all(worker for worker in self._workers.waiting if worker.may_call_models)
        self._wake.set()
        self._changed()

    async def _connect(self) -> None:
        hello = await self._zygote.connect()
        self._zygote.claim(tuple(self._workers.by_id))
        if self._settings.model_limits is not None:
            self._zygote.send(self._settings.model_limits)
        for worker in self._workers.by_id.values():
            # Repeat orders that may have been lost with the previous zygote.
            if worker.was_killed:
                self._zygote.send(Kill(worker.id))
            elif worker.state is WorkerState.BUSY:
                self._zygote.send(Continue(worker.id))
        self.python_version = hello.python_version
        self.pyspark_version = hello.pyspark_version
        self.memory_limit_bytes = hello.memory_limit_bytes
        self.zygote_pid = hello.pid
        self.sandbox = tuple(SandboxLayer(*layer) for layer in hello.sandbox)
        functions = self._zygote.functions
        self.functions = tuple(function for function in functions if function.name not in UNLISTED)
        self.unlisted = tuple(function for function in functions if function.name in UNLISTED)
        if hello.generation != self.generation:
            # End workers with older functions. Busy workers end after their exchange.
            self.generation = self._workers.generation = hello.generation
            self._workers.discard_all(self._workers.waiting)
        self._zygote.send(Sweep())
        self._changed()

    async def _start_worker(self) -> PooledWorker:
        """Fork a worker and wait until it is ready; raises PoolError."""
        limit_seconds = self._settings.fork_timeout_seconds
        with contextlib.ExitStack() as undo:
            try:
                async with asyncio.timeout(limit_seconds):
                    worker = PooledWorker(
                        await self._zygote.fork(), self._outputs, self._ended, self._zygote.send, self.generation
                    )
                    undo.callback(self._workers.discard, worker)
                    self._workers.by_id[worker.id] = worker
                    worker.death.add_done_callback(lambda death: self._died(worker, death.result()))
                    await worker.ready()
                    if worker.generation != self.generation:
                        raise ZygoteLostError()
            except TimeoutError:
                raise leases.PoolError(f"a new worker was not ready within {limit_seconds:g} seconds") from None
            undo.pop_all()
        return worker

    def _lease(self, worker: PooledWorker, task: leases.TaskKey | None, binding: Binding) -> WorkerLease:
        self.resting.end(worker)
        worker.state = WorkerState.BUSY
        self._workers.bind(worker, binding)
        lease = WorkerLease(worker, task, self._released)
        self._workers.leases.add(lease)
        self._changed()
        return lease

    def _released(self, lease: WorkerLease, outcome: leases.LeaseOutcome) -> None:
        worker = lease.held
        self._workers.leases.discard(lease)
        worker.works_for(LogContext())
        is_lasting = worker.bound.binding is None or worker.bound.binding.is_lasting
        is_reusable = outcome is leases.LeaseOutcome.CLEAN and is_lasting and worker.state is WorkerState.BUSY
        if not is_reusable or self._closing or worker.generation != self.generation:
            self._workers.discard(worker)
        else:
            self._workers.keep(worker)
        self._sweep_behind(worker)
        self._heal()

    def _ended(self, worker: PooledWorker) -> None:
        """Start a replacement for a worker that has ended. The zygote reports the worker's exit status separately."""
        self.resting.forget(worker)
        if not any(lease.held is worker for lease in self._workers.leases):
            worker.close_socket()
        self._heal()

    def _died(self, worker: PooledWorker, death: WorkerDeath) -> None:
        self.exits[worker.reason_of(death)] += 1
        del self._workers.by_id[worker.id]
        self._sweep_behind(worker)
        self._changed()

    def _sweep_behind(self, worker: PooledWorker) -> None:
        if share_memory(self.sandbox) and self._workers.may_sweep(worker):
            self._zygote.send(Sweep())

    def _exited(self, packet: Exited) -> None:
        worker = self._workers.by_id.get(packet.worker)
        if worker is not None:
            worker.exited(WorkerDeath(packet.status))

    def _heal(self) -> None:
        """Fill gaps after a change that may leave a worker missing."""
        self._workers.fill_up()
        self._wake.set()
        self._changed()

    def _changed(self) -> None:
        self.idle = self._workers.count(WorkerState.IDLE)
        self.fresh = self._workers.count(WorkerState.FRESH)
        self.busy = len(self._workers.leases)
        # Leave out workers that will be fresh: they do not increase the number of exchanges that the pool can run.
        self.starting = min(self._starts.unasked, max(0, -self._workers.surplus)) + self._starts.extra
        for callback in list(self._subscribers):
            callback()
