# SPDX-License-Identifier: Apache-2.0
"""Overtaking in the queue: which tasks hold workers, and how often each of them has overtaken waiting exchanges.

A new exchange of a task that holds a worker may overtake, because the task's running exchange may be waiting for the
results of the new exchange ("Several exchanges of one task" in proto/README.md).
"""

from collections import Counter
from collections.abc import Collection

from updraft_server.front.queue.turns import add
from updraft_server.pool.leases import TaskKey

MOST_OVERTAKING = 64
"""Most overtakings by one task until it has given all its workers back. Without a limit, a client that always names the
same task would keep workers for ever."""

# Most overtakings in a row, by any tasks, that take a worker from an exchange whose turn it is. Without this limit, a
# tenant with many tasks, each with many exchanges, would keep all workers.
_MOST_PASSING = 8


class Overtaking:
    """Workers held by each task, and the overtakings that count against the limits."""

    def __init__(self) -> None:
        self._holding: Counter[TaskKey] = Counter()
        self._overtaken: Counter[TaskKey] = Counter()
        """Number of overtakings by each task, since it began to hold workers."""
        self._passing = 0
        """Overtakings that took a worker from an exchange whose turn it was, since the last worker given in turn."""

    @property
    def tasks(self) -> Collection[TaskKey]:
        """Tasks that hold workers."""
        return self._holding

    def hold(self, task: TaskKey | None, change: int) -> None:
        """Count workers that a task has taken or, if `change` is negative, given back."""
        if task is not None:
            add(self._holding, task, change)
            if task not in self._holding:
                self._overtaken.pop(task, None)

    def may_overtake(self, task: TaskKey | None) -> bool:
        """Return whether an exchange of this task may take a worker before its turn."""
        return task is not None and self._holding[task] > 0 and self._overtaken[task] < MOST_OVERTAKING

    @property
    def may_pass(self) -> bool:
        """Whether an overtaking exchange may take a worker from an exchange whose turn it is."""
        return self._passing < _MOST_PASSING

    def overtook(self, task: TaskKey | None, *, passes: bool) -> None:
        """Count an overtaking; `passes` says whether the worker was taken from an exchange whose turn it was."""
        if task is not None:
            self._overtaken[task] += 1
            self._passing += int(passes)

    def served_in_turn(self) -> None:
        """Allow overtakings again, because an exchange received a worker in its turn."""
        self._passing = 0
