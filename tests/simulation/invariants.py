# SPDX-License-Identifier: Apache-2.0
"""Invariants of pods and executors, which the checker compares with its own counts at each step.

`tests.support.invariants` has the invariants of rows, files, memory and credentials, which the soak uses too.

The checker reads from the product which workers are idle and which exchanges wait, and at the end the counts that must
be zero. It counts everything else itself.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.client.retry_budget import BURST, INTERVAL_NANOS
from tests.simulation.messages import Open
from tests.simulation.world import ViolationError, World
from tests.support.invariants import Invariants
from updraft_server.pool.leases import TaskKey

if TYPE_CHECKING:
    from tests.simulation.network import Stream
    from tests.simulation.pod import Pod
    from tests.simulation.workers_side import WorkerProcess

# Longest time for which a pod may leave a worker idle while an exchange that it could serve waits. A pod may first have
# to start another worker, because a worker serves one owner.
IDLE_BESIDE_A_WAITER_SECONDS = 10.0
# The same limit, if the pod gives workers to other exchanges during the wait.
LONGEST_IDLE_BESIDE_A_WAITER_SECONDS = 60.0
# Longest time that an exchange may wait for a worker, whatever breaks. All exchanges of a run together need less time.
LONGEST_WAIT_SECONDS = 600.0
# A front may accept a revoked credential until it reads the token file again.
REVOCATION_SECONDS = 2.0


@dataclass(slots=True)
class _Waiting:
    command: Open
    place: Any
    since: float


@dataclass(slots=True)
class _PodRecord:
    waiting: dict[Stream, _Waiting] = field(default_factory=dict)
    held: dict[Stream, Open] = field(default_factory=dict)
    leases: dict[str, Stream] = field(default_factory=dict)
    held_by_tenants: Counter[str] = field(default_factory=Counter)
    tasks: set[TaskKey] = field(default_factory=set)
    """Tasks that have held a worker. Further exchanges of these tasks may overtake other exchanges."""
    is_drained: bool = False
    idle_since: float | None = None
    last_grant: float = 0.0


class Checker:
    """Checker of one run, which sees all events."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.longest_wait_seconds = LONGEST_WAIT_SECONDS
        """Bound on the time for which an exchange may wait for a worker."""
        self.on_failure: Callable[[ViolationError], None] = lambda _error: None
        self.invariants = Invariants(self.fail)
        """Checker of rows, files, memory and credentials, which the soak uses too."""
        self._pods: dict[str, _PodRecord] = {}
        self._retries: dict[str, list[tuple[int, int]]] = {}

    def fail(self, message: str) -> None:
        """Report a violation."""
        self.world.note("VIOLATION", message)
        error = ViolationError(f"at {self.world.now:.3f} s: {message}")
        self.on_failure(error)
        raise error

    # Pods.

    def pod_started(self, pod: Pod) -> None:
        self._pods[pod.name] = _PodRecord()

    def pod_ended(self, pod: Pod) -> None:
        self._pods.pop(pod.name, None)

    def drained(self, pod: Pod) -> None:
        self._pods[pod.name].is_drained = True

    def waits(self, pod: Pod, stream: Stream, command: Open, place: Any) -> None:
        if (record := self._pods.get(pod.name)) is not None:
            record.waiting[stream] = _Waiting(command, place, self.world.now)

    def waits_no_more(self, pod: Pod, stream: Stream) -> None:
        if (record := self._pods.get(pod.name)) is None:
            return
        waiting = record.waiting.pop(stream, None)
        if waiting is not None:
            self.invariants.waited(stream.name, self.world.now - waiting.since, self.longest_wait_seconds)

    def granted(self, pod: Pod, stream: Stream, command: Open, lease: Any) -> None:
        self.world.note(pod.name, stream.name, "has", lease.worker)
        record = self._pods.get(pod.name)
        if record is None:
            return
        if record.is_drained:
            self.fail(f"{pod.name} gave a worker to {stream.name} after its drain began")
        if lease.worker in record.leases:
            self.fail(f"{pod.name} gave worker {lease.worker} to {stream.name} and {record.leases[lease.worker].name}")
        most = pod._caps.of(command.tenant).max_workers
        own = record.held_by_tenants[command.tenant]
        overtakes = command.task in record.tasks
        record.tasks.add(command.task)
        record.last_grant = self.world.now
        if most is not None and own >= most and not overtakes:
            self.fail(f"{pod.name} gave tenant {command.tenant} worker {own + 1}, its cap is {most}")
        self._check_turn(pod, record, command, overtakes=overtakes)
        record.leases[lease.worker] = stream
        record.held[stream] = command
        record.held_by_tenants[command.tenant] += 1

    def _check_turn(self, pod: Pod, record: _PodRecord, command: Open, *, overtakes: bool) -> None:
        """Check that no waiting tenant has fewer workers than this one; skip exchanges that are bound to an owner."""
        if overtakes or command.binding.owner is not None:
            return
        own = record.held_by_tenants[command.tenant]
        # Admission also counts extra workers that are starting for exchanges that may overtake.
        coming = Counter(each.command.tenant for each in record.waiting.values() if each.command.task in record.tasks)
        for waiting in record.waiting.values():
            tenant = waiting.command.tenant
            most = pod._caps.of(tenant).max_workers
            count = record.held_by_tenants[tenant] + coming[tenant]
            # An exchange that may overtake may be waiting until its own extra worker has started.
            is_first = waiting.command.task not in record.tasks and not waiting.place.granted.done()
            is_alike = is_first and waiting.command.binding == command.binding
            if is_alike and (most is None or count < most) and count < own and waiting.since < self.world.now:
                self.fail(
                    f"{pod.name} gave tenant {command.tenant}, which has {own} workers, another one while "
                    f"{tenant}, which has {count}, waited"
                )

    def runs(self, pod: Pod, command: Open) -> None:
        self.invariants.opens(f"an exchange at {pod.name}", command.token, self.world.now, REVOCATION_SECONDS)

    def assigned(self, pod: Pod, process: WorkerProcess, command: Open) -> None:
        owner = command.binding.owner
        if process.has_work_left:
            self.fail(f"{pod.name} reuses worker {process.name}, whose last exchange did not end well")
        if process.owner is None:
            process.owner = (owner,)
        elif process.owner != (owner,):
            self.fail(f"{pod.name} let worker {process.name} of {process.owner} serve {owner}")

    def released(self, pod: Pod, stream: Stream) -> None:
        record = self._pods.get(pod.name)
        if record is None:
            return
        command = record.held.pop(stream)
        record.leases = {worker: holder for worker, holder in record.leases.items() if holder is not stream}
        record.held_by_tenants[command.tenant] -= 1

    def look(self, pod: Pod) -> None:
        """Check that no worker is idle for long beside an exchange that it could serve."""
        record = self._pods.get(pod.name)
        if record is None or record.is_drained:
            return
        waiting = [each for each in record.waiting.values() if self._may_have_one(pod, record, each)]
        if not pod.pool.idle or not waiting:
            record.idle_since = None
            return
        if record.idle_since is None:
            record.idle_since = self.world.now
        # Other exchanges may have waited, and received workers, before these exchanges came.
        began = max(record.idle_since, min(each.since for each in waiting))
        # A pod replaces idle workers one by one, so a recent grant shows that the pod works on its queue.
        quiet = self.world.now - max(began, record.last_grant) > IDLE_BESIDE_A_WAITER_SECONDS
        if quiet or self.world.now - began > LONGEST_IDLE_BESIDE_A_WAITER_SECONDS:
            self.fail(f"{pod.name} has {pod.pool.idle} idle workers, and {len(record.waiting)} exchanges wait for one")

    def clock_jumped(self) -> None:
        """Restart the measurement of idle time: pods could not use the time by which the clock jumped."""
        for record in self._pods.values():
            record.idle_since = None

    def _may_have_one(self, pod: Pod, record: _PodRecord, waiting: _Waiting) -> bool:
        most = pod._caps.of(waiting.command.tenant).max_workers
        is_below = most is None or record.held_by_tenants[waiting.command.tenant] < most
        return is_below and not waiting.place.granted.done()

    # Executors.

    def calls(self, exchange: str, address: int, elsewhere: Sequence[int]) -> None:
        """Check that an exchange calls the pod that has its task's other calls, if that pod accepts the exchange."""
        if elsewhere:
            self.fail(f"{exchange} calls pod {address}, and other calls of its task are at {elsewhere}")

    def retries(self, executor: str, begins_nanos: int) -> None:
        """Check that a retry that an executor begins at this time is within the executor's budget."""
        decisions = self._retries.setdefault(executor, [])
        decisions.append((self.world.nanos, begins_nanos))
        del decisions[: -4 * BURST]
        # At any moment, a burst of retries may begin at once, and then one more retry in each interval.
        begins: list[int] = []
        for decided, begin in reversed(decisions):
            insort(begins, begin)
            for count, each in enumerate(begins[BURST:], start=1):
                # Pauses are whole milliseconds, rounded down.
                if each < decided + count * INTERVAL_NANOS - 1_000_000:
                    self.fail(f"{executor} begins {BURST + count} retries within {(each - decided) / 1e9:.3f} s")

    # The end.

    def settled(self, pod: Pod) -> None:
        """Check a pod on which nothing runs or waits any more."""
        admission, pool = pod.admission, pod.pool
        left = {
            "waiting": admission.waiting,
            "queue_bytes": admission.queue_bytes,
            "busy": pool.busy,
            "tasks that hold workers": len(admission._overtaking.tasks),
            "workers at work": admission._turns._at_work.total(),
        }
        self.invariants.settles(pod.name, left)
        workers = pool.idle + pool.starting
        if workers < pod.settings.workers:
            self.fail(f"{pod.name} has {workers} workers at the end, not {pod.settings.workers}")
