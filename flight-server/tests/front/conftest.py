# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of admission."""

from collections.abc import AsyncIterator

import pytest
from admission_arrivals import PoolOf
from fake_pool import FakePool


@pytest.fixture
async def pool_of() -> AsyncIterator[PoolOf]:
    """Return `pool_of(workers)`, which makes a pool that is closed when the test ends."""
    pools: list[FakePool] = []

    def make(workers: int) -> FakePool:
        pools.append(FakePool(workers))
        return pools[-1]

    yield make
    for pool in pools:
        await pool.close(0)
