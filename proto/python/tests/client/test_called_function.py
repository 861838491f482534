# SPDX-License-Identifier: Apache-2.0
"""Casts of values to the type of an argument."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from updraft.client.called_function import fit


def test_integers_become_decimals_if_their_values_fit() -> None:
    price = pa.decimal128(10, 2)
    prices = fit(pa.chunked_array([pa.array([1, None, 99_999_999])]), price, "the price")
    assert prices.type == price
    assert prices.to_pylist() == [Decimal("1.00"), None, Decimal("99999999.00")]
    with pytest.raises(ValueError, match=r"the price is decimal128\(10, 2\), and a value of type int64 does not fit"):
        fit(pa.chunked_array([pa.array([100_000_000])]), price, "the price")
