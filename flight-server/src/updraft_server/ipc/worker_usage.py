# SPDX-License-Identifier: Apache-2.0
"""Resource usage of a worker or model process with all processes that it has started, and limits other than memory.

The zygote measures both kinds of process. The front checks the limits of workers, and the zygote checks the limits of
model processes.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

LONGEST_WORK_SECONDS = 86_400.0
"""Time limit of work that has no other limit.

The limit is longer than honest work takes. Without it, a worker that hangs would never become free again.
"""


class WorkerUsage(NamedTuple):
    """One measurement of a worker or model process."""

    memory_bytes: int
    """Resident memory of its processes; a page that several processes share is counted for each of them."""
    processor_mark: str
    """Mark that differs from the previous mark if a process began, ended or used CPU time in between."""
    own_bytes: int = 0
    """Anonymous and shared memory of its processes, beyond the memory of the image.

    This is an upper bound, because a page that a process shares with its forked children is counted for each of them.
    """
    processes: int = 1
    """Number of processes: the process itself, and those that it has started."""
    processor_seconds: float = 0.0
    """CPU time of the living processes, and of ended children that they have waited for."""
    threads: int = 1
    """Threads of all its processes together."""
    container_bytes: int | None = None
    """Anonymous and shared memory of everything in the container or machine, each page once; None if unknown."""
    scratch_bytes: int = 0
    """Size of its scratch directory on the disk at the last measurement."""
    scratch_files: int = 0
    """Number of entries of all kinds in the scratch directory."""
    scratch_room_bytes: int | None = None
    """Free bytes on the volume of all scratch directories; None if unknown."""


class Excess(NamedTuple):
    """Limit that a process exceeds, in words for errors."""

    took: str
    """The excess, as a verb phrase about the process."""
    limit: int
    remedy: str
    """Advice to the user, ending with the setting of the pool to raise."""


# OpenMP, BLAS and Arrow each start a thread for each CPU. A worker with nearly the allowed number of processes needs
# far fewer than sixteen threads per process on average.
_THREADS_OF_A_PROCESS = 16
# Files are limited too, because even the smallest file uses an inode and a directory entry. Library caches contain
# files of a few KiB, so even a small scratch directory may contain 10,000 files. Measuring more than a million files
# would take too long.
_BYTES_OF_A_FILE = 64 * 1024
_LEAST_FILES, _MOST_FILES = 10_000, 1_000_000


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits, other than memory, of a worker or model process with all processes that it has started."""

    processes: int
    """Limit of `WorkerUsage.processes`."""
    threads: int
    """Limit of `WorkerUsage.threads`."""
    scratch_bytes: int
    """Limit of `WorkerUsage.scratch_bytes`."""
    scratch_files: int
    """Limit of `WorkerUsage.scratch_files`."""

    @classmethod
    def of(cls, processes: int, scratch_bytes: int, **others: float) -> Self:
        """Return limits, with threads derived from processes, and files from bytes. `others` are further fields."""
        files = min(max(scratch_bytes // _BYTES_OF_A_FILE, _LEAST_FILES), _MOST_FILES)
        return cls(processes, _THREADS_OF_A_PROCESS * processes, scratch_bytes, files, **others)

    def exceeded(self, usage: WorkerUsage, scratch: str) -> Excess | None:
        """Return the first limit that is exceeded, if any. `scratch` names the scratch directory."""
        tidy = "remove temporary files that are not needed any more, or raise --worker-scratch-bytes"
        threads = "start fewer, or raise the limit, which follows from --worker-processes"
        for used, limit, what, remedy in (
            (usage.processes, self.processes, "ran {} processes", "start fewer, or raise --worker-processes"),
            (usage.threads, self.threads, "ran {} threads in its processes together", threads),
            (usage.scratch_bytes, self.scratch_bytes, f"had {{}} bytes in {scratch}", tidy),
            (usage.scratch_files, self.scratch_files, f"had {{}} files in {scratch}", tidy),
        ):
            if used > limit:
                return Excess(what.format(used), limit, remedy)
        return None


class ProcessorTime:
    """CPU seconds that one batch has used in a worker or model process and all processes that it has started."""

    def __init__(self) -> None:
        self._taken = 0
        self._seconds = 0.0
        self._measured_seconds: float | None = None
        self._before_fall_seconds = math.inf

    def measured(self, taken: int, processor_seconds: float) -> float:
        """Return the seconds so far, from the number of batches taken and the CPU time since the process was forked.

        If a child process ends and its parent does not wait for it, the CPU time since the fork decreases permanently,
        but time that was counted before stays counted. If a process ends during a measurement, the measured CPU time is
        too low only until the next measurement.
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
