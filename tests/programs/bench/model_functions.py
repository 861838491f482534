# SPDX-License-Identifier: Apache-2.0
"""Model of docs/examples/functions/digits.py, declared in the three ways that `make bench-models` compares."""

from __future__ import annotations

from typing import Any, cast

from docs.examples.functions.digits import Digit

from updraft import function
from updraft.functions import Batching, Function

joined = cast(Function[Any, Any], Digit)
one_by_one = function(name="digit_one_by_one", batching=Batching(rows=64, wait_seconds=0.0))(joined.target)
in_each_worker = function(name="digit_in_each_worker")(joined.target)
