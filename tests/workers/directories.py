# SPDX-License-Identifier: Apache-2.0
"""Directories of a side, which functions on the pool can write to."""

import tempfile
from pathlib import Path


def new_directory() -> Path:
    """Return a new empty directory, which other users may write to: on a cluster, executors and pool are such."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o777)
    return directory
