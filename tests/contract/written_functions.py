# SPDX-License-Identifier: Apache-2.0
"""Pool with the functions of a module that a test has written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from tests.support.pool import LocalPool


@contextmanager
def pool_of(code: str, directory: Path) -> Iterator[LocalPool]:
    """Start a pool with only this module's functions; the module is written into the directory."""
    (directory / "written.py").write_text(code)
    with (
        mock.patch.dict(os.environ, PYTHONPATH=str(directory)),
        LocalPool(session_functions="off", arguments=("--functions", "written")) as pool,
    ):
        yield pool
