# SPDX-License-Identifier: Apache-2.0
"""Set-up of `make test-gpu`, which fails without a GPU and says why, and never skips for lack of one."""

from collections.abc import Iterator
from typing import Any

import pytest

from updraft_writer.gpu.admission import DeviceAdmission, DeviceLimits
from updraft_writer.gpu.engine import GpuEngine
from updraft_writer.gpu.gpu import Gpu, find_engine
from updraft_writer.gpu.staging import Staging
from updraft_writer.reason import Reason

MEMORY_BYTES = 8 << 30
# Memory returns to the resource that it came from, so each engine must outlive the last file.
_engines: list[GpuEngine] = []
_stagings: list[Staging] = []


def engine_with(memory_bytes: int) -> GpuEngine:
    found = find_engine("gpu", memory_bytes=memory_bytes)
    assert not isinstance(found, Reason), found
    _engines.append(found)
    return found


def pytest_sessionstart() -> None:
    found = find_engine("gpu", memory_bytes=MEMORY_BYTES)
    if isinstance(found, Reason):
        pytest.exit(f"no GPU here: {found.text}", returncode=1)
    _engines.append(found)
    # Pinned memory is never freed, so all tests use one pool. Its blocks are small, so that tables need several.
    _stagings.append(Staging(found.pinned, 64 << 20, block_bytes=1 << 20))


@pytest.fixture
def engine() -> Iterator[GpuEngine]:
    """Return the real engine with plenty of memory; changes by a test are undone for the next one."""
    found = engine_with(MEMORY_BYTES)
    yield found
    found.check()


@pytest.fixture
def gpu(engine: GpuEngine) -> Gpu:
    return Gpu(engine, DeviceAdmission(DeviceLimits(engine.memory_bytes)), _stagings[0])


@pytest.fixture
def limited(engine: GpuEngine) -> Iterator[Any]:
    """Return a function that limits the library's memory; `engine` has all of it again after the test."""

    yield engine_with
    engine_with(MEMORY_BYTES)
