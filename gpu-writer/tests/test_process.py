# SPDX-License-Identifier: Apache-2.0
"""Errors of a writer's process before it serves clients."""

import pyarrow  # noqa: F401 - the test is about a process that has imported it
import pytest

from updraft_writer.process import use_little_memory


def test_memory_cannot_be_configured_after_pyarrow() -> None:
    with pytest.raises(RuntimeError, match="pyarrow is already imported"):
        use_little_memory()
