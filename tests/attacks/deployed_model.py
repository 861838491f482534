# SPDX-License-Identifier: Apache-2.0
"""A batched function of the pool under attack, for others to want a way to."""

from __future__ import annotations

from batched import add

NAME = "a_model"

add(NAME, lambda numbers: numbers)
