# SPDX-License-Identifier: Apache-2.0
"""Measurements from repeated starts of a Spark count together."""

from __future__ import annotations

from tests.programs.bench.record import Record, pooled


def test_runs_of_a_case_and_variant_are_taken_together() -> None:
    first = [Record("a", "stock", 10, [9.0], [1.0], [2.0]), Record("a", "updraft", 10, [8.0], [0.5], [1.0])]
    second = [Record("a", "stock", 10, [7.0], [3.0], [4.0]), Record("b", "stock", 10, [1.0], [1.0], [1.0])]
    assert pooled([*first, *second]) == [
        Record("a", "stock", 10, [9.0, 7.0], [1.0, 3.0], [2.0, 4.0]),
        first[1],
        second[1],
    ]


def test_a_record_keeps_its_own_runs() -> None:
    record = Record("a", "stock", 10, [], [1.0], [2.0])
    pooled([record, Record("a", "stock", 10, [], [3.0], [4.0])])
    assert record.wall_s == [1.0]
