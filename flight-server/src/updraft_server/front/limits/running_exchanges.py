# SPDX-License-Identifier: Apache-2.0
"""Running exchanges, each of which holds a worker. They are checked at intervals and ended if they exceed a limit.

The front ends an exchange if one side is silent for too long, if the worker exceeds a limit, or if a drain runs out of
time. The checks also measure workers between exchanges. The relay counts messages and knows which side has to act next;
`updraft.service.silence` decides how much silence is too long.
"""

import asyncio
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from updraft.errors import DeadlineError, LimitError, PoolUnavailableError, UpdraftError
from updraft.service.metrics import Metrics
from updraft.service.silence import Silence, seconds_between_looks
from updraft_server.front.limits.verdict import LastMemoryUse
from updraft_server.front.limits.worker_limits import WorkerLimits
from updraft_server.front.relay.batch_limits import BatchTimeout
from updraft_server.front.relay.relay import Relay, Side
from updraft_server.ipc.worker_usage import LONGEST_WORK_SECONDS, ProcessorTime, WorkerUsage
from updraft_server.pool.interface import WorkerPool

_log = structlog.get_logger(__name__)

# A function can allocate some hundred MiB between two checks. The container needs spare memory for these allocations.
_LIMITS_LOOK_SECONDS = 0.25
# Every 40th check, which is every ten seconds, also measures workers between exchanges.
_LOOKS_TO_ALL = 40
# The front waits for twice the time that a worker's clock allows, plus _LATE_SECONDS, because on a busy machine that
# clock starts later than the front's. A session function also gets _IMPORTS_SECONDS for its imports, during which the
# worker's clock does not run.
_LATE_SECONDS = 1.0
_IMPORTS_SECONDS = 30.0
# A worker that its client has left unused for this long can go to another tenant that waits. A task may compute for
# minutes between two batches, so the pool takes such workers only from a tenant with at least its share of the workers.
_UNUSED_WORKER_SECONDS = 120.0
# A second of use makes up for this many seconds without use. So a client that uses its worker for less than a tenth of
# the time loses the worker in the end, however evenly the client spreads its batches.
_UNUSED_PER_USED = 9.0


def longest_processor_seconds() -> float:
    """Return the default CPU time for one batch: all CPUs of the machine for the longest time that work may take."""
    return LONGEST_WORK_SECONDS * (os.cpu_count() or 1)


class WorkTime:
    """Counter of the seconds that a function has worked on one batch.

    The counter counts checks instead of reading a clock, so that time in which the front was stopped is not included.
    Only a further batch restarts the count. Output of the worker does not restart it, nor does a report in which the
    number of taken batches has not grown. Work after the last batch counts for that batch. `ProcessorTime` counts CPU
    time.
    """

    def __init__(self, look_seconds: float) -> None:
        self._look_seconds = look_seconds
        self._taken = 0
        self._seconds = 0.0
        self._was_working = False

    def looked(self, taken: int, *, is_working: bool) -> float:
        """Count one check and return the seconds so far; `taken` is the number of batches that the function has taken.

        The count pauses while the function waits for its client.
        """
        if taken > self._taken:
            self._taken, self._seconds = taken, 0.0
        elif is_working and self._was_working:
            self._seconds += self._look_seconds
        self._was_working = is_working
        return self._seconds


class UnusedTime:
    """Counter of the seconds for which a client has left its worker unused, counted in checks as in `WorkTime`.

    A check finds the worker in use if its client has sent a batch or read a reply since the previous check, or if the
    worker has work.
    """

    def __init__(self, look_seconds: float) -> None:
        self._look_seconds = look_seconds
        self._signs: Hashable = None
        self.seconds = 0.0
        """Seconds without use, less those that use has made up for; at most _UNUSED_WORKER_SECONDS."""

    def looked(self, signs: Hashable, *, waits_for_client: bool) -> None:
        """Count one check; `signs` changes with every batch and every reply."""
        if waits_for_client and signs == self._signs:
            self.seconds = min(_UNUSED_WORKER_SECONDS, self.seconds + self._look_seconds)
        else:
            self.seconds = max(0.0, self.seconds - _UNUSED_PER_USED * self._look_seconds)
        self._signs = signs


@dataclass(eq=False, slots=True)
class _Watched:
    relay: Relay
    tenant: str
    unused: UnusedTime
    client: Silence
    worker: Silence
    work: WorkTime
    processor: ProcessorTime = field(default_factory=ProcessorTime)
    passed: tuple[int, ...] = field(default=())
    """`Relay.passed` at the previous check."""
    took_too_much: bool = False
    """Whether the worker is counted in `RunningExchanges.out_of_memory` already."""


class RunningExchanges:
    """Exchanges of one front that hold a worker."""

    def __init__(
        self,
        pool: WorkerPool,
        *,
        client_silence_seconds: float,
        worker_silence_seconds: float,
        limits: Callable[[], WorkerLimits],
        giving_way: Callable[[Sequence[str]], Sequence[int]] = lambda _tenants: (),
        batch_processor_seconds: float = 0.0,
        longest_batch_seconds: float = LONGEST_WORK_SECONDS,
    ) -> None:
        """Create the watcher of a pool's exchanges. A limit of 0 seconds means no limit.

        Args:
            pool: Pool that has the workers.
            client_silence_seconds: How long a client may be silent while the pool waits for it.
            worker_silence_seconds: How long a worker may send and accept no message and use no CPU time while the
                client waits.
            limits: Returns the current limits of a worker.
            giving_way: Returns which workers to give to other tenants. Its argument lists, for each worker that its
                client leaves idle, the tenant; its result lists indices of this argument.
            batch_processor_seconds: How much CPU time a function may use for one batch.
            longest_batch_seconds: How long a function may work on one batch if its worker has no clock.
        """
        self._pool = pool
        self._limits = limits
        self.last_memory_use = LastMemoryUse()
        self.out_of_memory = dict.fromkeys(("worker", "pool", "container"), 0)
        """Workers that ended because of their memory, by the limit that was exceeded.

        The limit is that of the worker itself, of all workers together (pool), or of the container. If the container's
        limit was exceeded, the kernel has ended all workers. Then only the worker that most likely caused this counts.
        """
        self._client_silence_seconds = client_silence_seconds
        self._worker_silence_seconds = worker_silence_seconds
        self._batch_processor_seconds = batch_processor_seconds
        self._longest_batch = BatchTimeout.effective(longest_batch_seconds, 0)
        self._giving_way = giving_way
        self._look_seconds = seconds_between_looks(
            client_silence_seconds, worker_silence_seconds, _UNUSED_WORKER_SECONDS
        )
        self._looks = 0
        self._watched: set[_Watched] = set()

    def show_in(self, metrics: Metrics) -> None:
        """Add the counter of workers that ran out of memory."""
        metrics.count_by_label(
            "updraft_workers_out_of_memory",
            "Workers ended for the memory they took, by the limit that was exceeded: worker, pool or container.",
            "limit",
            lambda: self.out_of_memory,
        )

    @property
    def worker_memory_bytes(self) -> int:
        """Memory limit of a worker, in bytes."""
        return self._limits().memory_bytes

    @contextmanager
    def watching(self, relay: Relay, tenant: str = "") -> Iterator[None]:
        """Watch a relay for the duration of the block. `tenant` is the tenant that its worker counts for."""
        watched = _Watched(
            relay,
            tenant,
            UnusedTime(_LIMITS_LOOK_SECONDS),
            Silence(self._client_silence_seconds, self._look_seconds),
            Silence(self._worker_silence_seconds, self._look_seconds),
            WorkTime(_LIMITS_LOOK_SECONDS),
        )
        self._watched.add(watched)
        try:
            yield
        finally:
            self._watched.discard(watched)

    def end_all(self, error: UpdraftError) -> None:
        """End every exchange, and send this error to the clients."""
        for watched in self._watched:
            watched.relay.end(error)

    async def watch(self) -> None:
        """Check for silent exchanges at intervals, until cancelled."""
        while True:
            await asyncio.sleep(self._look_seconds)
            try:
                await self.look()
            except Exception:
                _log.exception("cannot check for silent exchanges")

    async def watch_clocks(self) -> None:
        """Count time at intervals, until cancelled. This loop never waits for a measurement, which may take seconds."""
        while True:
            await asyncio.sleep(_LIMITS_LOOK_SECONDS)
            try:
                self.look_at_clocks()
            except Exception:
                _log.exception("cannot check the time of batches")

    async def watch_limits(self) -> None:
        """Check at intervals, until cancelled, what resources workers use."""
        while True:
            await asyncio.sleep(_LIMITS_LOOK_SECONDS)
            try:
                await self.look_at_limits()
            except Exception:
                _log.exception("cannot measure what workers take")

    def look_at_clocks(self) -> None:
        """Count unused time, and end exchanges whose function works too long on a batch despite the worker's clock."""
        for watched in self._watched:
            relay = watched.relay
            received, _, sent = relay.client_activity
            watched.unused.looked((received, sent), waits_for_client=relay.turn is Side.CLIENT)
            # `has_begun` makes the first batch restart the count too, because the worker ran imports before it.
            seconds = watched.work.looked(relay.taken + relay.has_begun, is_working=relay.is_working)
            if 0 < _without_its_clock_seconds(relay) <= seconds:
                relay.end_for(relay.batch_timeout.error(relay.subject))
            elif 0 < self._longest_batch.seconds <= seconds:
                # The worker may have no clock of its own.
                relay.end_for(self._longest_batch.error(relay.subject))

    async def look_at_limits(self) -> None:
        """End exchanges whose worker exceeds a limit. Replace workers that exceed a limit between exchanges."""
        resting = self._pool.resting
        resting.end_expired()
        measured = {watched.relay.worker for watched in self._watched}.union(resting.unsettled)
        if self._looks % _LOOKS_TO_ALL == 0:
            measured.update(worker.worker for worker in self._pool.workers)
        self._looks += 1
        if not measured:
            return
        waited = resting.since
        usage = await self._pool.measure(list(measured))
        waiting = waited.items() & resting.since.items()
        running = {watched.relay.worker: watched for watched in self._watched if watched.relay.worker in usage}
        used_by_running = {worker: usage[worker] for worker in running}
        self.last_memory_use.measured(used_by_running, self._pool.memory_limit_bytes)
        limits = self._limits()
        # Skip workers that had an exchange during the measurement: processes and CPU time of the exchange are not
        # leftovers.
        resting.measured({worker: usage[worker] for worker, _ in waiting if worker in usage}, limits.excess_at_rest)
        known = resting.usage
        measured_now = {worker: used for worker, used in usage.items() if worker in running or worker in known}
        for worker, reason in limits.too_much_at_rest(measured_now, known, resting.sessions).items():
            resting.replace(worker, reason)
        largest = limits.largest_of_too_much(used_by_running)
        for worker, watched in running.items():
            relay, used = watched.relay, usage[worker]
            excess = limits.excess(relay.subject, used) or self._too_much_processor_time(watched, used)
            if excess is not None:
                relay.end_for(excess)
                if used.own_bytes > limits.memory_bytes:
                    self._count_once(watched, "worker")
            elif worker == largest:
                relay.end(limits.shortage(relay.subject, used))
                self._count_once(watched, "pool")

    def _count_once(self, watched: _Watched, limit: str) -> None:
        """Count a worker that ends because of its memory. Count it once, even if it still runs at the next check."""
        self.out_of_memory[limit] += not watched.took_too_much
        watched.took_too_much = True

    async def look(self) -> None:
        """End exchanges in which a side has been silent for too long."""
        for watched in self._watched:
            relay, client = watched.relay, watched.client
            if client.is_too_long(relay.client_activity, owed=relay.turn is Side.CLIENT):
                relay.end(_client_is_silent(client.limit_seconds))
        self._take_unused_workers()
        if self._worker_silence_seconds:
            await self._look_at_workers()

    def _take_unused_workers(self) -> None:
        unused = [watched for watched in self._watched if watched.unused.seconds >= _UNUSED_WORKER_SECONDS]
        for index in self._giving_way([watched.tenant for watched in unused]):
            unused[index].relay.end(_worker_is_needed())

    async def _look_at_workers(self) -> None:
        # A worker that has sent or received a message since the previous check need not be measured.
        still = {watched for watched in self._watched if self._is_still(watched)}
        usage = await self._pool.measure([watched.relay.worker for watched in still]) if still else {}
        for watched in self._watched:
            relay, worker = watched.relay, watched.worker
            used = usage.get(relay.worker) if watched in still else None
            # A worker that cannot be measured may be computing, so do not count it as silent.
            owed = relay.turn is Side.WORKER and used is not None
            if worker.is_too_long((relay.passed, used.processor_mark if used else None), owed=owed):
                relay.end_for(_worker_is_silent(relay.subject, worker.limit_seconds))

    def _too_much_processor_time(self, watched: _Watched, used: WorkerUsage) -> LimitError | None:
        """Return the error if a function has used more CPU time for its batch than it may, else None."""
        if watched.relay.is_loading:
            watched.processor = ProcessorTime()
            return None
        seconds = watched.processor.measured(watched.relay.taken, used.processor_seconds)
        if not 0 < self._batch_processor_seconds < seconds:
            return None
        return LimitError(
            f"{watched.relay.subject} used {seconds:.1f} seconds of CPU time for one batch, the limit is "
            f"{self._batch_processor_seconds:g}, and its worker was ended: send smaller batches, or raise "
            "--batch-cpu-seconds of the pool"
        )

    def _is_still(self, watched: _Watched) -> bool:
        before, watched.passed = watched.passed, watched.relay.passed
        return watched.relay.turn is Side.WORKER and before == watched.passed


def _without_its_clock_seconds(relay: Relay) -> float:
    """Return the work time after which a worker must have disabled its clock; 0 if the worker has no clock.

    The clock does not run during imports.
    """
    batches_seconds = relay.batches_at_once * relay.batch_timeout.batch_seconds
    allowed_seconds = _LATE_SECONDS if relay.has_begun else _LATE_SECONDS + _IMPORTS_SECONDS
    return 2 * batches_seconds + allowed_seconds if batches_seconds else 0.0


def _worker_is_needed() -> PoolUnavailableError:
    return PoolUnavailableError(
        f"the client used its worker less than a tenth of the time for {_UNUSED_WORKER_SECONDS:g} seconds, its tenant "
        "has at least its share of the workers, and the pool gave the worker to another tenant that waited: replies "
        "that were sent remain valid, and another worker can take the rest"
    )


def _client_is_silent(limit_seconds: float) -> DeadlineError:
    return DeadlineError(
        f"the client was silent for {limit_seconds:g} seconds while the pool waited for it: it neither sent a batch or "
        "a keepalive nor read a reply; a client that needs longer has to send keepalives, or raise "
        "--client-silence-seconds of the pool"
    )


def _worker_is_silent(subject: str, limit_seconds: float) -> DeadlineError:
    return DeadlineError(
        f"{subject} neither accepted nor returned a batch and used no CPU time for {limit_seconds:g} "
        "seconds, and its worker was ended: if it may wait for something that long, raise --worker-silence-seconds of "
        "the pool"
    )
