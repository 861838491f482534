# SPDX-License-Identifier: Apache-2.0
"""What the front's tests share."""

import pytest
from front_harness import Running, running_front_over


@pytest.fixture
def running_front() -> Running:
    """`async with running_front(pool, **settings)`: a front that serves until the block ends."""
    return running_front_over
