# SPDX-License-Identifier: Apache-2.0
"""Growth of memory, descriptors and disk during a soak: the last quarter compared with the second quarter."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_FEWEST_SAMPLES = 20
# Growth to ignore, as a share and as an absolute value: caches, allocators, a process more or less in a sample.
_ALLOWED = {"memory MiB": (0.25, 64.0), "descriptors": (0.25, 32.0), "disk MiB": (0.25, 8.0), "files": (0.25, 32.0)}


@dataclass
class Trend:
    """Samples of all services together. Comparing medians of quarters hides the effect of single kills."""

    members: Callable[[], Sequence[psutil.Process]]
    directories: Sequence[Path]
    samples: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in _ALLOWED})

    def sample(self) -> None:
        """Take one sample."""
        resident = descriptors = 0
        for process in self.members():
            with contextlib.suppress(psutil.Error):
                resident += process.memory_info().rss
                descriptors += process.num_fds()
        self.samples["memory MiB"].append(resident / 2**20)
        self.samples["descriptors"].append(descriptors)
        sizes = [size for directory in self.directories for size in _sizes_bytes(directory)]
        self.samples["disk MiB"].append(sum(sizes) / 2**20)
        self.samples["files"].append(len(sizes))

    def quarters(self, name: str) -> tuple[float, float]:
        """Return the medians of the second and the last quarter, because the first quarter is warm-up."""
        samples = self.samples[name]
        quarter = max(1, len(samples) // 4)
        return statistics.median(samples[quarter : 2 * quarter] or samples), statistics.median(samples[-quarter:])

    def growing(self) -> list[str]:
        """Return the names of the measurements that grew, or no names if the soak took only seconds."""
        found = []
        for name, (share, absolute) in _ALLOWED.items():
            early, late = self.quarters(name)
            if len(self.samples[name]) >= _FEWEST_SAMPLES and late > early * (1 + share) + absolute:
                found.append(name)
        return found


def _sizes_bytes(directory: Path) -> list[int]:
    """Return the size of every file and directory below a directory, because leftovers may be small but many."""
    found = []
    # os.walk skips a directory that was removed meanwhile.
    for path, directories, files in os.walk(directory):
        for name in (*directories, *files):
            with contextlib.suppress(OSError):
                found.append(Path(path, name).lstat().st_blocks * 512)
    return found
