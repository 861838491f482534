# SPDX-License-Identifier: Apache-2.0
"""Batched function of the pool under attack, whose model process attempts try to reach."""

from __future__ import annotations

from updraft import function
from updraft.functions import Arrow, Batching

NAME = "a_model"


@function(name=NAME, batching=Batching())
def a_model(number: Arrow[int]) -> Arrow[int]:
    """The numbers."""
    return number
