# SPDX-License-Identifier: Apache-2.0
"""Functions of another pool: one of the same name as in `deployed_functions.py`, and one that is there alone."""

from updraft import function


@function(version="1")
def add(left: int, right: int) -> int:
    """A sum of another pool, which is higher by a thousand."""
    return left + right + 1000


@function
def only_elsewhere(value: int) -> int:
    return -value
