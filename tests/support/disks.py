# SPDX-License-Identifier: Apache-2.0
"""Small disks that a test can fill."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


def why_no_mount() -> str:
    """Return why this machine cannot mount a small disk; an empty text if it can."""
    return "" if os.getuid() == 0 else "a small disk is a mount, which needs root"


@contextlib.contextmanager
def small_disk(directory: Path, size: str) -> Iterator[None]:
    """Mount an empty disk of this size (such as "16m") on a directory, for the block."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)], check=True)
    try:
        yield
    finally:
        # A process that has just ended may keep the mount busy for a moment.
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
