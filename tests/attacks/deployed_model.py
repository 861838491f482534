# SPDX-License-Identifier: Apache-2.0
"""A batched function of the pool under attack, for others to want a way to."""

from __future__ import annotations

from updraft import function
from updraft.functions import Arrow, Batching

NAME = "a_model"


@function(name=NAME, batching=Batching())
def a_model(number: Arrow[int]) -> Arrow[int]:
    """The numbers."""
    return number
