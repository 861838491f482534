# SPDX-License-Identifier: Apache-2.0
"""Model of docs/examples/functions/digits_torch.py, declared in the three ways that `make bench-models` compares."""

from __future__ import annotations

from typing import Any, cast

from docs.examples.functions.digits_torch import DigitTorch

from updraft import function
from updraft.functions import Batching, Function

_example = cast(Function[Any, Any], DigitTorch)
joined = function(name="digit", batching=Batching(rows=1024, wait_seconds=0.1, device="cuda"))(_example.target)
one_by_one = function(name="digit_one_by_one", batching=Batching(rows=64, wait_seconds=0.0))(_example.target)
in_each_worker = function(name="digit_in_each_worker")(_example.target)
