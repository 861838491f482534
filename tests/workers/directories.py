# SPDX-License-Identifier: Apache-2.0
"""Directories of a side, which functions on the pool can write to."""

import tempfile
from pathlib import Path


def new_directory() -> Path:
    """Return a new empty directory."""
    return Path(tempfile.mkdtemp())
