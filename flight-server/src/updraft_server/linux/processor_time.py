# SPDX-License-Identifier: Apache-2.0
"""CPU time that a process and everything it has started use for one batch; each new batch starts a new count."""

import math


class ProcessorTime:
    """Counter of the CPU seconds that one batch has used in a worker or model process and everything it has started."""

    def __init__(self) -> None:
        self._taken = 0
        self._seconds = 0.0
        self._measured_seconds: float | None = None
        self._before_fall_seconds = math.inf

    def measured(self, taken: int, processor_seconds: float) -> float:
        """Return the seconds so far, from the number of batches taken and the CPU time since the process was forked.

        That total falls for good if a process ends and its parent does not wait for it; the time counted before stays
        counted. If a process ends during a measurement, the total falls only until the next one.
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
