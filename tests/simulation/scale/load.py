# SPDX-License-Identifier: Apache-2.0
"""Load of many executors on a simulated cluster: each executor calls, thinks, and calls again. Results have times."""

from __future__ import annotations

import asyncio
import math
import random
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.simulation.client.recovery import Timeouts
from tests.simulation.cluster import Cluster
from tests.simulation.executor import ClientOptions, Executor, Task
from tests.simulation.messages import Work
from tests.simulation.pod import PodSettings
from tests.simulation.simulate import close
from tests.simulation.virtual_loop import silence_logs
from tests.simulation.workers_side import simulated_processes
from tests.simulation.world import ViolationError, World
from updraft.service.tenants import Caps


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a cluster and of its load."""

    executors: int
    pods: int
    workers: int
    """Number of workers in each pod."""
    seconds: float
    """Length of the run."""
    think_seconds: float
    """Mean time between two exchanges of an executor."""
    batch_seconds: Callable[[random.Random], float]
    """Function that draws the time that a function takes for a batch."""
    batches: int = 1
    latency_seconds: float = 0.001
    arrival_seconds: float = 0.0
    """Time within which all executors begin."""
    zones: int = 3
    tenants: tuple[str, ...] = ("default",)
    queue_limit: int = 256
    tasks_of_an_executor: int = 1
    """Number of tasks that share an executor, with its retry budget and its knowledge of pods."""


@dataclass(frozen=True, slots=True)
class Done:
    """Exchange that has ended."""

    at: float
    tenant: str
    wait_seconds: float
    """Time of the exchange in addition to the function's own time."""
    is_failed: bool


@dataclass(slots=True)
class Look:
    """State of the cluster at one moment."""

    at: float
    calls: int
    """Number of calls since the beginning."""
    ready: int
    """Number of pods that are ready."""
    busy: int
    waiting: int
    busiest: float
    """Number of exchanges, running and waiting, at the busiest pod, divided by the average of all pods."""


@dataclass(slots=True)
class Result:
    """Everything that a run has counted."""

    done: list[Done] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)

    def waits(self, begin: float, end: float, tenant: str | None = None) -> list[float]:
        """Return the waits of the successful exchanges that ended in this period."""
        return [
            each.wait_seconds
            for each in self.done
            if begin <= each.at < end and not each.is_failed and tenant in (None, each.tenant)
        ]

    def throughput(self, begin: float, end: float) -> float:
        """Return the number of successful exchanges per second in this period."""
        return len(self.waits(begin, end)) / (end - begin)


class Load:
    """Run of one load."""

    def __init__(self, size: Size, seed: int = 1) -> None:
        self.size = size
        self.world = World(seed)
        self.cluster = Cluster(self.world)
        self._violations: list[ViolationError] = []
        self.cluster.checker.on_failure = self._violations.append
        # Do not bound waits, because a load measures waits.
        self.cluster.checker.longest_wait_seconds = math.inf
        self.result = Result()
        self.think_seconds = dict.fromkeys(size.tenants, size.think_seconds)
        """For each tenant, the mean time between two exchanges of an executor."""
        self.askers: list[asyncio.Task[None]] = []
        """Tasks of executors that call."""
        self._slots: list[Executor] = []
        """Executors, once for each task that they can still run."""
        self._numbers = iter(range(1 << 60))

    def run(self, events: Iterable[tuple[float, Callable[[Load], None]]] = ()) -> Result:
        """Run to the end, with these events at the given times."""
        silence_logs()
        asyncio.set_event_loop(self.world.loop)
        for at, event in events:
            self.world.loop.call_at(at, lambda event=event: event(self))  # type: ignore[misc]
        with simulated_processes():
            try:
                self.world.loop.run_until_complete(self._whole())
            finally:
                close(self.world)
        if self._violations:
            raise self._violations[0]
        return self.result

    async def _whole(self) -> None:
        size, cluster = self.size, self.cluster
        for number in range(size.pods):
            self.add_pod(number % size.zones)
        for number in range(size.executors):
            self.askers.append(self.add_executor(size.tenants[number % len(size.tenants)], size.arrival_seconds))
        while self.world.now < size.seconds:
            await asyncio.sleep(1.0)
            ready = [pod for pod in cluster.pods if pod.is_ready]
            loads = [pod.pool.busy + pod.admission.waiting for pod in ready]
            mean = statistics.mean(loads) if loads else 0.0
            self.result.looks.append(
                Look(
                    self.world.now,
                    cluster.calls,
                    len(ready),
                    sum(pod.pool.busy for pod in ready),
                    sum(pod.admission.waiting for pod in ready),
                    max(loads) / mean if mean else 1.0,
                )
            )

    def add_pod(self, zone: int) -> None:
        """Add a pod."""
        settings = PodSettings(workers=self.size.workers, queue_limit=self.size.queue_limit, queue_bytes=512 << 20)
        self.cluster.add_pod(settings, zone, Caps())

    def add_executor(self, tenant: str, within_seconds: float = 0.0) -> asyncio.Task[None]:
        """Add a task, which begins within this time, to an executor with a free slot or to a new executor."""
        if not self._slots:
            executor = self.cluster.add_executor(ClientOptions(Timeouts()))
            executor.latency_seconds = self.size.latency_seconds
            self._slots = [executor] * self.size.tasks_of_an_executor
        executor = self._slots.pop()
        return self.world.loop.create_task(
            self._ask(executor, tenant, self.world.random.uniform(1.0, 1.0 + within_seconds))
        )

    async def _ask(self, executor: Executor, tenant: str, at: float) -> None:
        size, world = self.size, self.world
        await asyncio.sleep(at)
        while True:
            works = [Work(size.batch_seconds(world.random)) for _ in range(size.batches)]
            task = Task(f"app-{tenant}", tenant, next(self._numbers), [works])
            began = world.now
            failure = await executor.run(task, 0)
            wait = world.now - began - sum(work.seconds for work in works)
            self.result.done.append(Done(world.now, tenant, wait, failure is not None))
            if think_seconds := self.think_seconds[tenant]:
                await asyncio.sleep(world.random.expovariate(1 / think_seconds))


def quantile(values: list[float], share: float) -> float:
    """Return the value below which this share of the values lies; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
