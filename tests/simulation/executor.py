# SPDX-License-Identifier: Apache-2.0
"""Simulated executor: one JVM, whose tasks share a retry budget, circuits and knowledge about pods."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from tests.simulation.client.circuit import Circuit
from tests.simulation.client.recovery import Failure, Reach, Recovery, Timeouts
from tests.simulation.client.replicas import Replicas
from tests.simulation.client.request_log import Batch, Replay
from tests.simulation.client.retry_budget import RetryBudget
from tests.simulation.exchange import Exchange, Phase
from tests.simulation.invariants import Checker
from tests.simulation.messages import Open, Work
from tests.simulation.world import World
from tests.support.invariants import Rows, Source
from updraft_server.pool.bindings import REGISTERED, Binding
from updraft_server.pool.leases import Owner, TaskKey

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Options of the connector that the policy uses, with the product's default values."""

    timeouts: Timeouts = field(default_factory=Timeouts)
    window_batches: int = 4
    window_bytes: int = 16 << 20
    replay_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Task:
    """Task of a job: batches that pass through one function, or through several functions in a row."""

    application: str
    tenant: str
    number: int
    works: Sequence[Sequence[Work]]
    """Effect of each batch on its worker, for each function."""
    replay: Replay = Replay.REPLAY
    session: bool = False
    """Whether the functions are session functions, each of whose workers serves one owner."""
    rows: int = 10
    body_bytes: int = 1000
    artifact_seconds: float = 0.0

    @property
    def batches(self) -> int:
        return len(self.works[0])

    @property
    def is_poisoned(self) -> bool:
        """Whether some batch always kills or hangs its worker."""
        return any(work.kills or work.hangs for function in self.works for work in function)


class Executor:
    """Executor, which stands for one JVM."""

    def __init__(self, world: World, cluster: Cluster, checker: Checker, name: str, options: ClientOptions) -> None:
        self.world = world
        self.cluster = cluster
        self.checker = checker
        self.name = name
        self.options = options
        self.latency_seconds = 0.001
        self.token = cluster.token_file.token
        self.replicas = Replicas(lambda: -world.between(1, 1 << 62))
        self._budget = RetryBudget()
        self._circuits: dict[int, Circuit] = {}
        self._failed_addresses: set[int] = set()
        self._has_answered = False

    def new_recovery(self) -> Recovery:
        """Return the policy of a new exchange."""
        world = self.world
        return Recovery(self.options.timeouts, self._budget, world.nanos, world.between)

    def addresses(self) -> Sequence[int]:
        """Return the addresses of the pool's name, as this executor's resolver knows them."""
        return self.cluster.addresses()

    def renew_token(self) -> bool:
        """Read the token file again; return whether the token has changed."""
        before, self.token = self.token, self.cluster.token_file.token
        return self.token != before

    def may_connect(self, address: int) -> bool:
        """Return whether the executor may now try again to connect to an address that failed before."""
        return address not in self._failed_addresses or self._circuit(address).may_attempt(self.world.nanos)

    def connected(self, address: int) -> None:
        """Record that an address has answered."""
        self._failed_addresses.discard(address)
        self._circuit(address).connected()
        self._has_answered = True

    def connection_failed(self, address: int) -> None:
        """Record that an address refused a connection."""
        self._failed_addresses.add(address)

    def reach(self, *, is_connected: bool) -> Reach:
        """Return what this executor knows about the pool's endpoint."""
        if is_connected or self._has_answered:
            return Reach.ANSWERED
        return Reach.RESOLVED if self.addresses() else Reach.UNRESOLVED

    def _circuit(self, address: int) -> Circuit:
        return self._circuits.setdefault(address, Circuit(self.world.between))

    async def run(self, task: Task, attempt: int) -> Failure | None:
        """Run an attempt at a task, as Spark's task thread does; return the failure, or None."""
        changed = asyncio.Event()
        name = f"{task.application}/{task.number}.{attempt}"
        command = self._command(task, attempt)
        functions = [
            Exchange(self, f"{name}/{index}", command, task.replay, changed.set) for index, _ in enumerate(task.works)
        ]
        added, delivered = [0] * len(functions), [0] * len(functions)
        invariants = self.checker.invariants
        sources = [Source(task.tenant, task.application, f"{task.number}/{index}") for index, _ in enumerate(functions)]
        for source in sources:
            invariants.begins(source, task.batches * task.rows, attempt)
        for function in functions:
            function.siblings = functions
        for function in functions:
            function.start_call()
        try:
            while True:
                changed.clear()
                for index, function in enumerate(functions):
                    available = task.batches if index == 0 else delivered[index - 1]
                    while added[index] < available and function.log.has_room and function.phase is not Phase.FAILED:
                        added[index] += 1
                        first = (added[index] - 1) * task.rows + 1
                        content = Rows(sources[index], attempt, first, first + task.rows - 1)
                        batch = Batch(task.rows, task.body_bytes, content)
                        function.add(batch, task.works[index][added[index] - 1])
                    if added[index] == task.batches:
                        function.finish_sending()
                    while (answer := function.take()) is not None:
                        delivered[index] += 1
                        invariants.delivered(sources[index], cast(Rows, answer.content))
                    if function.failure is not None:
                        return function.failure
                if all(function.phase is Phase.FINISHED for function in functions):
                    break
                await changed.wait()
        finally:
            for function in functions:
                function.close()
        for source in sources:
            invariants.ends(source)
        return None

    def _command(self, task: Task, attempt: int) -> Open:
        owner = Owner(task.tenant, task.application, "")
        return Open(
            task.tenant,
            TaskKey(task.application, 0, task.number * 10 + attempt),
            Binding(owner) if task.session else REGISTERED,
            1000,
            task.artifact_seconds,
            self.token,
        )
