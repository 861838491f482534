# SPDX-License-Identifier: Apache-2.0
"""One run: the scenario of a seed, from its start until everything has settled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.simulation.cluster import Cluster, File
from tests.simulation.executor import Task
from tests.simulation.faults import FAULTS, Fault
from tests.simulation.scenario import Scenario, scenario_of
from tests.simulation.virtual_loop import silence_logs
from tests.simulation.workers_side import simulated_processes
from tests.simulation.world import ViolationError, World

# Limit on the time of a run, whatever happens: the sum of the bounds on all waits.
LONGEST_RUN_SECONDS = 6000.0
# Time after the last task and the last fault within which pods become whole: a drain, a restart, a start of workers.
_SETTLING_SECONDS = 240.0
_LOOK_SECONDS = 4.0


class Outcome(NamedTuple):
    """Outcome of a run."""

    seed: int
    digest: str
    violation: str
    """Invariant that did not hold; empty if all invariants held."""
    events: int
    lines: list[str]
    """Trace of the run, if the run kept it."""


def simulate(seed: int, *, keeps_lines: bool = False) -> Outcome:
    """Run a seed."""
    silence_logs()
    world = World(seed, keeps_lines=keeps_lines)
    asyncio.set_event_loop(world.loop)
    violation = ""
    with simulated_processes():
        try:
            world.loop.run_until_complete(_Run(world).whole())
        except ViolationError as error:
            violation = str(error)
        except Exception as error:
            violation = f"at {world.now:.3f} s: {type(error).__name__}: {error}"
        finally:
            close(world)
    return Outcome(seed, world.digest, violation, world.events, world.lines)


def close(world: World) -> None:
    """End everything that still runs, so that no part of this run stays in the process."""
    loop = world.loop
    # List the tasks of this loop alone: tasks of earlier runs may still wait for the garbage collector.
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        ends = asyncio.gather(*tasks, return_exceptions=True)
        loop.run_until_complete(asyncio.wait_for(ends, 1000.0))
    asyncio.set_event_loop(None)
    loop.close()


def _unawaited(context: dict[str, Any]) -> ViolationError:
    return ViolationError(f"{context['message']}: {context.get('exception')!r}")


class _Run:
    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = Cluster(world)
        self._violation: asyncio.Future[None] = world.loop.create_future()

    async def whole(self) -> None:
        """Run the scenario, let the cluster settle, and check the final state."""
        world, cluster = self.world, self.cluster
        scenario = scenario_of(world)
        # A violation inside a task of the product must end the whole run, and not that task alone.
        cluster.checker.on_failure = self._fail
        # An exception that no task awaits, such as an exception in a timer's callback, must end the run too.
        world.loop.set_exception_handler(lambda _loop, context: self._fail(_unawaited(context)))
        for zone in scenario.zones:
            cluster.add_pod(scenario.pod, zone, scenario.caps)
        for _ in range(scenario.executors):
            cluster.add_executor(scenario.options)
        for _ in range(scenario.writers):
            cluster.add_writer(scenario.writer)
            rows = max((rows for _, file in scenario.files for rows in file.batches), default=0)
            cluster.writers[-1].largest_batch_bytes = 8 * rows
        for fault in scenario.faults:
            world.later(fault.at_seconds, self._on_time(fault))
        jobs = asyncio.ensure_future(self._tasks(scenario))
        look = asyncio.ensure_future(self._look())
        try:
            async with asyncio.timeout(LONGEST_RUN_SECONDS):
                awaited: set[asyncio.Future[Any]] = {jobs, self._violation}
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                if self._violation.done():
                    self._violation.result()
                are_done = await jobs
        except TimeoutError:
            raise ViolationError(f"a task waits for more than {LONGEST_RUN_SECONDS:g} s") from None
        finally:
            jobs.cancel()
        if scenario.is_gentle and not all(are_done):
            raise ViolationError("a task failed, but nothing that ran was lost")
        await self._settled()
        look.cancel()
        for pod in cluster.pods:
            cluster.checker.settled(pod)
        for writer in cluster.writers:
            writer.check_settled()
        if self._violation.done():
            self._violation.result()

    async def _settled(self) -> None:
        """Wait until all faults are over and every pod is whole and serves nothing."""
        # By then, both sides of every silent stream have noticed the silence.
        await asyncio.sleep(max(0.0, 40.0 - self.world.now) + 35.0)
        limit = self.world.now + _SETTLING_SECONDS
        while left := self._unsettled():
            if self.world.now > limit:
                raise ViolationError(f"{left[0]} is busy or down long after the last fault")
            await asyncio.sleep(5.0)
        await asyncio.sleep(20.0)

    def _unsettled(self) -> list[str]:
        pods = [pod.name for pod in self.cluster.pods if not pod.is_ready or pod.streams]
        return pods + [writer.name for writer in self.cluster.writers if not writer.is_up or len(writer.files)]

    def _fail(self, error: ViolationError) -> None:
        if not self._violation.done():
            self._violation.set_exception(error)

    def _on_time(self, fault: Fault) -> Callable[[], None]:
        return lambda: FAULTS[fault.name](self.cluster)

    async def _tasks(self, scenario: Scenario) -> list[bool]:
        files = [self._file(scenario, at, file) for at, file in scenario.files]
        return await asyncio.gather(*(self._task(scenario, at, task) for at, task in scenario.tasks), *files)

    async def _file(self, scenario: Scenario, at: float, file: File) -> bool:
        await asyncio.sleep(at)
        attempts = await self.cluster.write(file, scenario.options.timeouts)
        return attempts == 1 + file.gives_up or (attempts > 0 and not scenario.is_gentle)

    async def _task(self, scenario: Scenario, at: float, task: Task) -> bool:
        await asyncio.sleep(at)
        # A client waits no longer than --connect-timeout for a name that has never had an address.
        is_early = not self.cluster.addresses()
        attempts = await self.cluster.run_task(task)
        return attempts > 0 and (attempts == 1 or is_early or not scenario.is_gentle)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for pod in self.cluster.pods:
                if pod.is_ready:
                    try:
                        self.cluster.checker.look(pod)
                    except ViolationError:
                        return
