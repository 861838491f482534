# SPDX-License-Identifier: Apache-2.0
"""One pool on one machine with more tasks than workers: waits and failures of its tasks for several queue limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.simulation.scale.load import Load, Size

TASKS, WORKERS = 64, 2
_BATCHES = 3
TASK_SECONDS: Mapping[str, float] = {"a second": 1.0, "a minute": 60.0}
"""Length of the tasks, by the words that name it."""
RUN_SECONDS: Mapping[str, float] = {"a second": 300.0, "a minute": 4000.0}
"""Length of the runs, by the same words."""


@dataclass(frozen=True, slots=True)
class OnePool:
    """Results of all tasks of a run."""

    ended: int
    failed: int
    longest_wait_seconds: float
    """Longest wait of a task that succeeded."""
    calls_per_task: float


def simulate(tasks: str, queue_limit: int, seconds: float) -> OnePool:
    """Simulate local[64], an executor with 64 slots, each of which starts its next task without a pause."""
    batch_seconds = TASK_SECONDS[tasks] / _BATCHES
    size = Size(
        executors=TASKS,
        tasks_of_an_executor=TASKS,
        pods=1,
        workers=WORKERS,
        seconds=seconds,
        think_seconds=0.0,
        batch_seconds=lambda dice: dice.uniform(0.75 * batch_seconds, 1.25 * batch_seconds),
        batches=_BATCHES,
        latency_seconds=0.0002,
        queue_limit=queue_limit,
    )
    result = Load(size).run()
    failed = sum(done.is_failed for done in result.done)
    return OnePool(
        ended=len(result.done) - failed,
        failed=failed,
        longest_wait_seconds=max(result.waits(0.0, size.seconds), default=0.0),
        # At the end, one task in each slot is still running or waiting.
        calls_per_task=result.looks[-1].calls / (len(result.done) + TASKS),
    )
