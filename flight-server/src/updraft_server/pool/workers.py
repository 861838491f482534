# SPDX-License-Identifier: Apache-2.0
"""Workers of a pool and their leases: which worker an exchange receives, and how many workers are extra or missing.

Module `pool` starts workers and waits for them. If all workers share one /dev/shm, owners may leave files there. So a
new exchange first waits until ending workers of other owners are gone, unless an exchange of another owner is running.
The zygote removes unused files (`updraft_server.linux.hostile_trees`).
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import structlog

from updraft_server.ipc.zygote_packets import Continue, Stop
from updraft_server.pool.absences import Absences
from updraft_server.pool.bindings import Binding, Bound, best, superfluous, victim
from updraft_server.pool.leases import LeaseOutcome, NoIdleWorker, PoolSettings, TaskKey, WorkerInfo
from updraft_server.pool.resting import RestingWorkers
from updraft_server.pool.worker import PooledWorker, WorkerState
from updraft_server.pool.worker_events import LogContext, WorkerDeath
from updraft_server.sandbox_layers import SHARED_MEMORY, SandboxLayer

# The front continues a worker without the zygote's help, because an exchange waits for the worker. The front notifies
# the zygote after this time: not at once, so that the zygote does not compete with the exchange for a core, but before
# the zygote would stop the worker again.
_NOTICE_SECONDS = 0.05
_STOPPED_SECONDS = 0.25
"""Time after a Stop within which the zygote has normally stopped the worker."""
LAST_DEATHS_SECONDS = 2.0
"""Longest wait for killed workers to end."""

_log = structlog.get_logger(__name__)


class WorkerLease:
    """`Lease` of a real worker, which reports its release to the pool once."""

    def __init__(
        self, held: PooledWorker, task: TaskKey | None, on_release: Callable[["WorkerLease", LeaseOutcome], None]
    ) -> None:
        self.held = held
        self.task = task
        self.worker = held.id
        self.socket = held.socket
        self.death = held.death
        self.log_context = LogContext()
        held.works_for(self.log_context)
        self._on_release = on_release
        self._is_released = False

    def count_for(self, tenant: str) -> None:
        """Count the worker for this tenant, also after the exchange."""
        self.held.tenant = tenant

    def release(self, outcome: LeaseOutcome) -> None:
        """Give the worker back to the pool. Only the first call has an effect."""
        if not self._is_released:
            self._is_released = True
            self._on_release(self, outcome)

    async def wait_for_deaths(self, workers: Sequence[PooledWorker]) -> None:
        """Wait until workers of other owners have ended; if they do not, release the lease and raise NoIdleWorker."""
        if not workers:
            return
        try:
            async with asyncio.timeout(LAST_DEATHS_SECONDS):
                await asyncio.gather(*(asyncio.shield(worker.death) for worker in workers))
        except BaseException as error:
            self.release(LeaseOutcome.CANCELLED)
            if isinstance(error, TimeoutError):
                raise NoIdleWorker("the worker of another owner does not end") from None
            raise


class PooledWorkers:
    """Living workers of a pool, and the leases of running exchanges."""

    def __init__(
        self, settings: PoolSettings, send: Callable[[Stop | Continue], None], heal: Callable[[], None]
    ) -> None:
        """Create the collection without any worker.

        Args:
            settings: Settings of the pool.
            send: Sends a packet to the zygote.
            heal: Called when a worker between two exchanges has been ended.
        """
        self._loop = asyncio.get_running_loop()
        self.generation = 0
        """Generation of the functions that new workers have."""
        self.by_id: dict[str, PooledWorker] = {}
        self.leases: set[WorkerLease] = set()
        self.resting: RestingWorkers[PooledWorker] = RestingWorkers(
            stop=self._stop,
            go_on=self._go_on,
            replace=self._replace,
            expire=self._expire,
            is_kept=lambda worker: worker.is_the_operators,
            idle_seconds=settings.idle_seconds,
            clock=self._loop.time,
        )
        """Workers between two exchanges."""
        self.absences = Absences()
        """Absences of owners whose workers were displaced."""
        self._settings = settings
        self._send = send
        self._notices: dict[str, asyncio.TimerHandle] = {}
        """Timers of Continue packets that have not been sent yet, by worker."""
        self._heal = heal
        self._uses = itertools.count(1)

    def _stop(self, worker: PooledWorker) -> None:
        if (notice := self._notices.pop(worker.id, None)) is not None:
            # The zygote has not been told that the worker was continued.
            notice.cancel()
        worker.stopped_seconds = self._loop.time()
        self._send(Stop(worker.id))

    def _go_on(self, worker: PooledWorker) -> None:
        # The zygote may not have read a recent Stop yet, and would then stop the worker after this signal.
        is_stopped = self._loop.time() - worker.stopped_seconds > _STOPPED_SECONDS
        if is_stopped and worker.go_on():
            self._notices[worker.id] = self._loop.call_later(_NOTICE_SECONDS, self._notify, worker)
        else:
            self._send(Continue(worker.id))

    def _notify(self, worker: PooledWorker) -> None:
        del self._notices[worker.id]
        self._send(Continue(worker.id))

    def infos(self) -> Sequence[WorkerInfo]:
        """Return what the status shows of each worker. May be called from any thread."""
        return tuple(
            WorkerInfo(
                worker.id,
                worker.pid,
                self.resting.state(worker.id) or worker.state.value,
                worker.usage.memory_bytes if worker.usage else None,
                worker.usage.scratch_bytes if worker.usage else None,
            )
            for worker in tuple(self.by_id.values())
        )

    def in_state(self, *states: WorkerState) -> Iterator[PooledWorker]:
        """Return the workers in any of these states, the oldest first."""
        return (worker for worker in self.by_id.values() if worker.state in states)

    def count(self, state: WorkerState) -> int:
        """Return the number of workers in this state."""
        return sum(1 for _ in self.in_state(state))

    @property
    def waiting(self) -> Iterator[PooledWorker]:
        """Workers that wait for an exchange."""
        return self.in_state(WorkerState.FRESH, WorkerState.IDLE, WorkerState.SPARE)

    @property
    def surplus(self) -> int:
        """Number of workers beyond the configured number (extra workers of tasks); negative if some are missing."""
        living = self.in_state(WorkerState.IDLE, WorkerState.BUSY)
        return sum(worker.generation == self.generation for worker in living) - self._settings.workers

    def missing(self, starting: int) -> int:
        """Return how many more workers to start, fresh ones included, if `starting` workers are being started."""
        wanted = max(0, -self.surplus) + self._settings.fresh_workers
        return max(0, wanted - self.count(WorkerState.FRESH) - starting)

    def held_by(self, task: TaskKey | None) -> int:
        """Return the number of workers that a task holds; 0 without a task."""
        return sum(lease.task == task for lease in self.leases) if task is not None else 0

    def best(self, state: WorkerState, binding: Binding) -> PooledWorker | None:
        """Return the worker in this state that serves an exchange of `binding` best; None if no worker can."""
        return best([(worker, worker.bound) for worker in self.in_state(state)], binding)

    def victim(self) -> PooledWorker | None:
        """Return the idle worker that makes room for another owner; None if no worker is idle."""
        return victim([(worker, worker.bound) for worker in self.in_state(WorkerState.IDLE)])

    def bind(self, worker: PooledWorker, binding: Binding | None) -> None:
        """Record the use of a worker."""
        worker.bound = Bound(binding, next(self._uses))

    def keep(self, worker: PooledWorker) -> None:
        """Keep a worker that an exchange gives back: as idle, or as a spare if the pool is complete without it."""
        worker.state = WorkerState.SPARE if self._has_one_for_each_task() else WorkerState.IDLE
        self.bind(worker, worker.bound.binding)
        if self.resting.begin(worker):
            self._limit_spares()
        else:
            self.discard(worker)

    def set_aside(self, worker: PooledWorker) -> None:
        """Make an idle worker a spare for its owner's return, because another owner's worker takes its place."""
        if worker.is_the_operators or not self._settings.fresh_workers:
            # Any fresh worker serves registered functions just as well. Without fresh workers, a spare would
            # occupy the place that a new owner waits for.
            self.discard(worker)
        else:
            self.absences.began(worker.owner)
            worker.state = WorkerState.SPARE
            self._limit_spares()

    def _limit_spares(self) -> None:
        spares = [(worker, worker.bound) for worker in self.in_state(WorkerState.SPARE)]
        if len(spares) > self._settings.workers:
            self.discard(superfluous(spares, self.absences.expected))

    def fill_up(self) -> None:
        """Let spare and fresh workers take the places of missing workers, as long as there are any."""
        while not self._has_one_for_each_task():
            fresh = next(self.in_state(WorkerState.FRESH), None) if self.surplus < 0 else None
            spare = max(self.in_state(WorkerState.SPARE), key=lambda worker: worker.bound.used, default=None)
            if (substitute := spare or fresh) is None:
                return
            substitute.state = WorkerState.IDLE

    def _has_one_for_each_task(self) -> bool:
        """Return whether running tasks and idle workers add up to the pool's size; all other workers are extra."""
        tasks = {lease.task or id(lease) for lease in self.leases if lease.held.generation == self.generation}
        return len(tasks) + self.count(WorkerState.IDLE) >= self._settings.workers

    def discard(self, worker: PooledWorker) -> None:
        """End a worker."""
        self.resting.forget(worker)
        worker.kill()
        worker.state = WorkerState.DEAD
        worker.close_socket()

    def discard_all(self, workers: Iterable[PooledWorker]) -> None:
        """End these workers."""
        for worker in list(workers):
            self.discard(worker)

    def end_all(self) -> Sequence[asyncio.Future[WorkerDeath]]:
        """End every worker; returns their deaths to wait for."""
        for worker in list(self.by_id.values()):
            self.resting.forget(worker)
            worker.kill()
            worker.close_socket()
        return [worker.death for worker in self.by_id.values()]

    def _expire(self, worker: PooledWorker) -> None:
        self.discard(worker)
        self._heal()

    def _replace(self, worker: PooledWorker, reason: str) -> None:
        """End a worker between exchanges because of what an exchange has left behind in it."""
        owner = worker.owner._asdict() if worker.owner is not None else {}
        _log.warning(
            "a worker was ended because of what an exchange has left behind in it",
            worker=worker.id,
            reason=reason,
            **owner,
        )
        worker.has_leftovers = True
        self._expire(worker)

    def may_sweep(self, behind: PooledWorker) -> bool:
        """Return whether a worker served a session that has no running exchange."""
        binding = behind.bound.binding
        if binding is None or binding.owner is None:
            return False
        others = (lease.held.bound.binding for lease in self.leases)
        return all(other is None or other.owner != binding.owner for other in others)

    def leaving(self, lease: WorkerLease, binding: Binding) -> Sequence[PooledWorker]:
        """Return the ending workers that an exchange of `binding` with a new `lease` has to wait for.

        The result is empty while another owner's exchange runs, because the two exchanges share /dev/shm anyway.
        """
        if any(_is_anothers(other.held, binding) for other in self.leases if other is not lease):
            return ()
        return [worker for worker in self.in_state(WorkerState.DEAD) if _is_anothers(worker, binding)]


def share_memory(sandbox: Iterable[SandboxLayer]) -> bool:
    """Return whether all workers share one /dev/shm."""
    return any(layer.name == SHARED_MEMORY and not layer.is_on for layer in sandbox)


def _is_anothers(worker: PooledWorker, binding: Binding) -> bool:
    """Return whether a worker has served a session that is not the session of `binding`, or cannot be proved to be."""
    own = worker.bound.binding
    return own is not None and own.owner is not None and (own.owner != binding.owner or not own.is_lasting)
