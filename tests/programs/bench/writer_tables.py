# SPDX-License-Identifier: Apache-2.0
"""Tables of the writer's benchmark: a generated table with the usual column types, and New York's flights of 2013."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.programs.demo.data import flights

_SEED = 4
_DAYS = 365


def mixed(rows: int) -> pa.Table:
    """Return a fact table: keys, unique names, categories, measures, money, times. Some columns contain nulls."""
    choose = np.random.default_rng(_SEED)

    def with_nulls(values: np.ndarray) -> pa.Array:
        return pa.array(values, mask=choose.random(rows) < 0.05)

    cities = np.array([f"city {number}" for number in range(50)])
    numbers = pc.cast(pa.array(choose.integers(0, 1 << 30, rows)), pa.string())
    cents = pa.array(np.round(choose.gamma(2, 20, rows), 2))
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "key": pa.array(choose.integers(0, 1 << 40, rows)),
            "city": with_nulls(cities[choose.zipf(1.5, rows) % len(cities)]),
            "name": pc.binary_join_element_wise("customer", numbers, "#"),
            "code": pa.array(choose.integers(0, 12, rows, dtype=np.int32)),
            "quantity": with_nulls(choose.integers(1, 100, rows, dtype=np.int32)),
            "amount": pa.array(np.round(choose.gamma(2, 50, rows), 2)),
            "score": pa.array(choose.random(rows)),
            "price": cents.cast(pa.decimal128(20, 2)).cast(pa.decimal128(9, 2)),
            "at": pa.array(1_700_000_000_000_000 + np.cumsum(choose.integers(0, 2_000_000, rows))).cast(
                pa.timestamp("us", "UTC")
            ),
            "day": pa.array(choose.integers(19_000, 19_000 + _DAYS, rows, dtype=np.int32)).cast(pa.date32()),
            "flag": pa.array(choose.random(rows) < 0.3),
        }
    )


TABLES = {"mixed": lambda: mixed(1_000_000), "flights": flights}
