# SPDX-License-Identifier: Apache-2.0
"""Scenario of a seed: the cluster, jobs and faults that the seed's random numbers determine."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.client.recovery import Timeouts
from tests.simulation.client.request_log import Replay
from tests.simulation.cluster import File
from tests.simulation.executor import ClientOptions, Task
from tests.simulation.faults import FAULTS, GENTLE, WRITER_FAULTS, Fault
from tests.simulation.messages import Work
from tests.simulation.pod import PodSettings
from tests.simulation.world import World
from tests.simulation.writer import WriterSettings
from updraft.service.tenants import Caps, TenantCaps


@dataclass(frozen=True, slots=True)
class Scenario:
    """Cluster, jobs and faults of one run."""

    zones: tuple[int, ...]
    """Zone of each pod."""
    pod: PodSettings
    caps: Caps
    executors: int
    options: ClientOptions
    tasks: tuple[tuple[float, Task], ...]
    """Tasks, each with the time at which it begins."""
    faults: tuple[Fault, ...]
    writer: WriterSettings
    writers: int
    files: tuple[tuple[float, File], ...]
    """Files, each with the time at which its task begins."""

    @property
    def is_gentle(self) -> bool:
        """Whether every task must succeed at its first attempt."""
        ends = [fault for fault in self.faults if fault.name in ("drain", "deploy")]
        return (
            # While a pod drains, other pods can serve its exchanges.
            len(ends) <= (len(self.zones) > 1)
            # A drain ends exchanges that still run after the drain's timeout.
            and self.pod.drain_timeout_seconds >= 60.0
            and all(fault.name in GENTLE for fault in self.faults)
            and self.options.timeouts.acquire_milliseconds >= 600_000
            and not any(task.is_poisoned for _, task in self.tasks)
        )


def scenario_of(world: World) -> Scenario:
    """Draw a random scenario."""
    random = world.random
    pods = random.choice([1, 2, 2, 3])
    tenants = [f"tenant{index}" for index in range(random.choice([1, 2, 2, 3, 4]))]
    has_sessions = world.chance(0.4)
    is_poisoned = world.chance(0.15)
    caps = TenantCaps(max_workers=random.choice([None, None, 1, 2]), max_waiting=random.choice([None, None, None, 3]))
    capped = frozenset(tenant for tenant in tenants if world.chance(0.3))
    acquire = random.choice([20_000, 600_000, 600_000])
    tasks = [
        (world.random.uniform(0.0, 6.0), _task(world, tenants, number, has_sessions, is_poisoned))
        for number in range(random.randint(2, 10))
    ]
    # A third of the seeds write files, and then run only a few other tasks.
    has_files = world.chance(0.35)
    files = [(world.random.uniform(0.0, 4.0), _file(world, tenants, number)) for number in range(random.randint(1, 8))]
    if has_files:
        tasks = tasks[:2]
    names = [name for name in FAULTS if has_files or name not in WRITER_FAULTS]
    if has_files and world.chance(0.7):
        names = list(WRITER_FAULTS)
    elif world.chance(0.3):
        names = sorted(GENTLE)
    faults = [Fault(world.random.uniform(0.5, 15.0), random.choice(names)) for _ in range(random.randint(0, 4))]
    return Scenario(
        zones=tuple(random.randint(0, 1) for _ in range(pods)),
        pod=PodSettings(
            workers=random.choice([1, 2, 2, 3, 4]),
            fresh_workers=random.choice([0, 0, 1]),
            queue_limit=random.choice([1, 3, 64, 64]),
            queue_bytes=random.choice([4000, 1 << 20, 1 << 20]),
            idle_seconds=random.choice([600.0, 600.0, 0.0]),
            drain_timeout_seconds=random.choice([5.0, 60.0]),
            batch_timeout_seconds=random.choice([10.0, 30.0]),
            ready_seconds=random.choice([0.3, 0.3, 2.0]),
        ),
        caps=Caps(lambda tenant: caps if tenant in capped else TenantCaps()),
        executors=random.randint(1, 3),
        options=ClientOptions(
            Timeouts(acquire_milliseconds=acquire),
            window_batches=random.choice([1, 2, 4]),
            replay_bytes=random.choice([2500, 64 << 20, 64 << 20]),
        ),
        tasks=tuple(sorted(tasks, key=lambda each: each[0])),
        faults=tuple(sorted(faults)),
        writer=WriterSettings(
            quota_bytes=random.choice([128 << 10, 512 << 10, 4 << 20]),
            max_open_files=random.choice([2, 8, 80]),
            store_seconds=random.choice([0.005, 0.1, 0.5]),
        ),
        writers=random.randint(1, 2) if has_files else 0,
        files=tuple(files) if has_files else (),
    )


def _file(world: World, tenants: list[str], number: int) -> File:
    random = world.random
    rows = random.choice([10, 2000, 8000, 20000])
    return File(
        tenant=random.choice(tenants),
        number=number,
        batches=tuple(max(1, round(rows * random.uniform(0.2, 1.0))) for _ in range(random.randint(0, 5))),
        is_synchronous=world.chance(0.2),
        pause_seconds=random.choice([0.0, 0.0, 0.3, 15.0]),
        gives_up=world.chance(0.1),
    )


def _task(world: World, tenants: list[str], number: int, has_sessions: bool, is_poisoned: bool) -> Task:
    random = world.random
    functions = random.choice([1, 1, 2])
    batches = random.randint(1, 6)
    seconds = random.choice([0.02, 0.2, 0.2, 1.0])
    works = [[Work(world.seconds(seconds)) for _ in range(batches)] for _ in range(functions)]
    if is_poisoned and world.chance(0.3):
        kills = world.chance(0.7)
        works[0][random.randrange(batches)] = Work(seconds, kills=kills, hangs=not kills)
    tenant = random.choice(tenants)
    return Task(
        application=f"app-{tenant}",
        tenant=tenant,
        number=number,
        works=works,
        replay=random.choice([Replay.REPLAY, Replay.REPLAY, Replay.FROM_THE_START, Replay.NEVER]),
        session=has_sessions and world.chance(0.6),
        rows=random.randint(1, 100),
        body_bytes=random.choice([500, 1000, 70_000]),
        artifact_seconds=random.choice([0.0, 0.0, 0.5]),
    )
