# SPDX-License-Identifier: Apache-2.0
"""Directories of one side that functions on the pool can write to."""

import tempfile
from pathlib import Path


def new_directory() -> Path:
    """Return a new empty directory that other users may write to, as executors and pool are on a cluster."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o777)
    return directory
