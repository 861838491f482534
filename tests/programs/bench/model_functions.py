# SPDX-License-Identifier: Apache-2.0
"""The model of docs/examples/functions/digits.py in the three ways that `make bench-models` compares."""

from __future__ import annotations

from docs.examples.functions.digits import Digit

from updraft import function
from updraft.functions import Batching

joined = Digit
one_by_one = function(name="digit_one_by_one", batching=Batching(rows=64, wait_seconds=0.0))(Digit.target)
in_each_worker = function(name="digit_in_each_worker")(Digit.target)
