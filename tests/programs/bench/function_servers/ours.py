# SPDX-License-Identifier: Apache-2.0
"""x + 1 as functions of a pool."""

import pyarrow.compute as pc

from updraft import function
from updraft.functions import Arrow


@function
def rows(x: int) -> int:
    """Add one to a value."""
    return x + 1


@function
def batch(x: Arrow[int]) -> Arrow[int]:
    """Add one to an Arrow array."""
    return pc.add(x, 1)
