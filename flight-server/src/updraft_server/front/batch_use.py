# SPDX-License-Identifier: Apache-2.0
"""What a function uses for one batch: the time that it works and the CPU time, since it last took a batch.

Only another batch begins a new count. Whatever else a worker sends does not: neither its output nor a number of batches
that it says twice or takes back. The end of the input does not either: what follows the last batch counts for that.
"""

import math


class WorkTime:
    """Seconds for which a function has worked, counted in looks: if the front itself stood still, nobody is blamed."""

    def __init__(self, look_seconds: float) -> None:
        self._look_seconds = look_seconds
        self._taken = 0
        self._seconds = 0.0
        self._was_working = False

    def looked(self, taken: int, *, is_working: bool) -> float:
        """The seconds so far; `taken` counts the batches that the function has taken.

        Time that it does not work, since it waits for the client, counts neither for it nor against it.
        """
        if taken > self._taken:
            self._taken, self._seconds = taken, 0.0
        elif is_working and self._was_working:
            self._seconds += self._look_seconds
        self._was_working = is_working
        return self._seconds


class ProcessorTime:
    """Seconds of CPU time that a worker and all its processes have used."""

    def __init__(self) -> None:
        self._taken = 0
        self._seconds = 0.0
        self._measured_seconds: float | None = None
        self._before_fall_seconds = math.inf

    def measured(self, taken: int, processor_seconds: float) -> float:
        """The seconds so far; `processor_seconds` is what the worker has used since it was forked.

        That falls for good when a process ends for which nobody waits: what it had used until then still counts. It
        falls until the next measurement when a process ends during one.
        """
        before, self._measured_seconds = self._measured_seconds, processor_seconds
        before_fall, self._before_fall_seconds = self._before_fall_seconds, math.inf
        if taken > self._taken or before is None:
            self._taken, self._seconds = max(taken, self._taken), 0.0
        elif processor_seconds < before:
            self._before_fall_seconds = before
        else:
            self._seconds += processor_seconds - (before_fall if before_fall <= processor_seconds else before)
        return self._seconds
