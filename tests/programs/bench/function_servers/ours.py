# SPDX-License-Identifier: Apache-2.0
"""x + 1 as functions of a pool."""

import pyarrow.compute as pc

from updraft import function
from updraft.functions import Arrow


@function
def rows(x: int) -> int:
    """One value at a time."""
    return x + 1


@function
def batch(x: Arrow[int]) -> Arrow[int]:
    """An Arrow array at a time."""
    return pc.add(x, 1)
