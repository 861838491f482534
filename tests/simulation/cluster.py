# SPDX-License-Identifier: Apache-2.0
"""Simulated cluster: pods behind one name, executors, and jobs whose failed tasks Spark tries again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.simulation.executor import ClientOptions, Executor, Task
from tests.simulation.invariants import Checker
from tests.simulation.pod import Pod, PodSettings
from tests.simulation.world import World
from updraft.service.tenants import Caps

MOST_ATTEMPTS = 4
"""Attempts that Spark makes at a task (spark.task.maxFailures)."""


class Cluster:
    """Everything that one run simulates."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.checker = Checker(world)
        self.pods: list[Pod] = []
        self.executors: list[Executor] = []
        self.lag_seconds = 0.5
        """Time after which resolvers see that a pod has become ready or has gone."""
        self.token = 1
        self._valid_tokens = {1}
        self._published: list[int] = []
        self._next_address = 1
        self._lost_addresses: set[int] = set()

    # Pods and their name.

    def add_pod(self, settings: PodSettings, zone: int, caps: Caps) -> Pod:
        """Add a pod and start it."""
        pod = Pod(self.world, self.checker, f"pod{len(self.pods)}", zone, settings, caps)
        pod.valid_tokens = lambda: frozenset(self._valid_tokens)
        self.pods.append(pod)
        self.boot(pod)
        return pod

    def boot(self, pod: Pod) -> None:
        """Start a pod that is down, under a new address."""
        address, self._next_address = self._next_address, self._next_address + 1
        pod.boot(address, lambda: self._publish(address))

    def drain(self, pod: Pod) -> None:
        """Drain a pod; it starts again some time after it has ended."""
        if pod.is_ready:
            self.world.note("drain", pod.name)
            self._withdraw(pod.address)
            pod.drain()

    def crash(self, pod: Pod, *, is_silent: bool) -> None:
        """End a pod. A silent one takes its node along, which then answers nothing."""
        self.world.note("crash", pod.name, is_silent)
        if is_silent:
            self._lost_addresses.add(pod.address)
            for stream in pod.streams:
                stream.fall_silent()
        self._withdraw(pod.address)
        pod.crash()

    def addresses(self) -> Sequence[int]:
        """Return the addresses of the pool's name."""
        return self._published

    def server_at(self, address: int, executor: Executor) -> Pod | None:
        """Return the pod that listens at an address; None if nothing does."""
        return next((pod for pod in self.pods if pod.address == address and pod.is_listening), None)

    def is_silent(self, address: int) -> bool:
        """Return whether nothing at all answers at this address."""
        return address in self._lost_addresses

    def _publish(self, address: int) -> None:
        self.world.later(self.world.seconds(self.lag_seconds), lambda: self._change([*self._published, address]))

    def _withdraw(self, address: int) -> None:
        self.world.later(
            self.world.seconds(self.lag_seconds),
            lambda: self._change([other for other in self._published if other != address]),
        )

    def _change(self, addresses: list[int]) -> None:
        self._published = addresses

    # Credentials.

    def rotate_token(self) -> None:
        """Revoke the current token; executors find another one in their token files."""
        self.checker.revoked[self.token] = self.world.now
        self._valid_tokens.discard(self.token)
        self.token += 1
        self._valid_tokens.add(self.token)
        self.world.note("token", self.token)

    # Jobs.

    def add_executor(self, options: ClientOptions) -> Executor:
        """Add an executor."""
        executor = Executor(self.world, self, self.checker, f"executor{len(self.executors)}", options)
        self.executors.append(executor)
        return executor

    async def run_task(self, task: Task) -> int:
        """Run a task as Spark does, which tries again on a failure. Return the attempts; 0 if none succeeded."""
        for attempt in range(MOST_ATTEMPTS):
            executor = self.world.random.choice(self.executors)
            failure = await executor.run(task, attempt)
            name = f"{task.application}/{task.number}.{attempt}"
            self.world.note(name, "ends", failure.kind.value if failure is not None else "well")
            if failure is None:
                return attempt + 1
            await asyncio.sleep(0.1)
        return 0
