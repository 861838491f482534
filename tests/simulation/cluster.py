# SPDX-License-Identifier: Apache-2.0
"""Simulated cluster: pods behind one name, executors, and jobs whose failed tasks Spark retries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.client.recovery import Timeouts
from tests.simulation.client.retry_budget import RetryBudget
from tests.simulation.disk import Disk
from tests.simulation.executor import ClientOptions, Executor, Task
from tests.simulation.file_task import FileTask
from tests.simulation.invariants import Checker
from tests.simulation.pod import Pod, PodSettings
from tests.simulation.token_file import TokenFile
from tests.simulation.world import World
from tests.simulation.writer import OpenWrite, Writer, WriterSettings, first_id
from updraft.service.tenants import Caps

LONGEST_ATTEMPT_SECONDS = 1000.0
"""Bound on the time of an attempt: ten minutes to wait for a worker, and a few minutes for everything that may hang."""
MOST_ATTEMPTS = 4
"""Attempts that Spark makes at a task (spark.task.maxFailures)."""


@dataclass(frozen=True, slots=True)
class File:
    """File that a task writes: the number of rows in each batch, and the behaviour of the task."""

    tenant: str
    number: int
    batches: tuple[int, ...]
    is_synchronous: bool = False
    pause_seconds: float = 0.0
    """Time that the task needs to compute each batch."""
    gives_up: bool = False
    """Whether Spark kills the first attempt at the task."""


class Cluster:
    """All parts of one simulated run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.checker = Checker(world)
        self.pods: list[Pod] = []
        self.executors: list[Executor] = []
        self.writers: list[Writer] = []
        self.disk = Disk(world, self.checker.invariants)
        self._writer_budget = RetryBudget()
        self.calls = 0
        """Number of calls of all executors to the pool."""
        self.lag_seconds = 0.5
        """Delay until resolvers notice that a pod has become ready or has gone."""
        self.token_file = TokenFile(world, self.checker.invariants)
        self._published: list[int] = []
        self._next_address = 1
        self._pods_by_address: dict[int, Pod] = {}
        self._lost_addresses: set[int] = set()

    # Pods and their name.

    def add_pod(self, settings: PodSettings, zone: int, caps: Caps) -> Pod:
        """Add a pod and start it."""
        pod = Pod(self.world, self.checker, f"pod{len(self.pods)}", zone, settings, caps, self.token_file)
        pod.on_failed_start = lambda: self.world.later(1.0, lambda: self.boot(pod))
        self.pods.append(pod)
        self.boot(pod)
        return pod

    def boot(self, pod: Pod) -> None:
        """Start a pod that is down, under a new address."""
        address, self._next_address = self._next_address, self._next_address + 1
        self._pods_by_address[address] = pod
        pod.boot(address, lambda: self._publish(address))

    def drain(self, pod: Pod) -> None:
        """Drain a pod, which restarts some time after the drain has ended."""
        if pod.is_ready:
            self.world.note("drain", pod.name)
            self._withdraw(pod.address)
            pod.drain()

    def crash(self, pod: Pod, *, is_silent: bool) -> None:
        """End a pod. In a silent crash, the node is lost too, so that nothing answers at the pod's address."""
        self.world.note("crash", pod.name, is_silent)
        if is_silent:
            self._lost_addresses.add(pod.address)
            for stream in pod.streams:
                stream.fall_silent()
        self._withdraw(pod.address)
        pod.crash()

    def hide(self, pod: Pod, seconds: float) -> None:
        """Remove a working pod from the name for this time."""
        address = pod.address
        self.world.note("hide", pod.name, seconds)
        self._change([other for other in self._published if other != address])

        def show() -> None:
            if pod.is_ready and pod.address == address:
                self._publish(address)

        self.world.later(seconds, show)

    def addresses(self) -> Sequence[int]:
        """Return the addresses of the pool's name."""
        return self._published

    def server_at(self, address: int, executor: Executor) -> Pod | None:
        """Return the pod that listens at an address, or None."""
        pod = self._pods_by_address.get(address)
        return pod if pod is not None and pod.address == address and pod.is_listening else None

    def is_ready_at(self, address: int) -> bool:
        """Return whether a pod that accepts exchanges listens at an address."""
        pod = self._pods_by_address.get(address)
        return pod is not None and pod.address == address and pod.is_ready

    def is_silent(self, address: int) -> bool:
        """Return whether the node of this address is lost, so that nothing answers."""
        return address in self._lost_addresses

    def _publish(self, address: int) -> None:
        self.world.later(
            self.world.seconds(self.lag_seconds),
            lambda: self._change([*(other for other in self._published if other != address), address]),
        )

    def _withdraw(self, address: int) -> None:
        self.world.later(
            self.world.seconds(self.lag_seconds),
            lambda: self._change([other for other in self._published if other != address]),
        )

    def _change(self, addresses: list[int]) -> None:
        self._published = addresses

    # Writers and files.

    def add_writer(self, settings: WriterSettings) -> None:
        """Add a writer and start it."""
        name = f"writer{len(self.writers)}"
        writer = Writer(self.world, self.disk, name, settings, self.checker.invariants)
        self.writers.append(writer)
        writer.boot()

    async def write(self, file: File, timeouts: Timeouts) -> int:
        """Write a file as Spark does, on a new path for each attempt. Return the number of attempts; 0 if all fail."""
        for attempt in range(MOST_ATTEMPTS):
            path = f"file{file.number}.{attempt}"
            command = OpenWrite(file.tenant, path, file.is_synchronous, first_id(file.number, attempt))
            task = FileTask(self, command, file.batches, timeouts, self._writer_budget)
            gives_up = file.gives_up and attempt == 0
            began = self.world.now
            failure = await task.run(file.pause_seconds, gives_up=gives_up)
            self._check_wait(path, began)
            self.world.note(path, "ends", failure.kind.value if failure is not None else "well")
            if failure is None:
                return attempt + 1
            await asyncio.sleep(0.1)
        return 0

    # Jobs.

    def add_executor(self, options: ClientOptions) -> Executor:
        """Add an executor."""
        executor = Executor(self.world, self, self.checker, f"executor{len(self.executors)}", options)
        self.executors.append(executor)
        return executor

    async def run_task(self, task: Task) -> int:
        """Run a task as Spark does, with retries. Return the number of attempts; 0 if none succeeded."""
        for attempt in range(MOST_ATTEMPTS):
            executor = self.world.random.choice(self.executors)
            began = self.world.now
            failure = await executor.run(task, attempt)
            name = f"{task.application}/{task.number}.{attempt}"
            self._check_wait(name, began)
            self.world.note(name, "ends", failure.kind.value if failure is not None else "well")
            if failure is None:
                return attempt + 1
            await asyncio.sleep(0.1)
        return 0

    def _check_wait(self, attempt: str, began: float) -> None:
        self.checker.invariants.waited(attempt, self.world.now - began, LONGEST_ATTEMPT_SECONDS)
