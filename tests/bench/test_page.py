# SPDX-License-Identifier: Apache-2.0
"""The page of the benchmark has a line for each case that both sides ran, against the best stock."""

from __future__ import annotations

from tests.programs.bench.cases import CASES, CHARTS
from tests.programs.bench.page import page
from tests.programs.bench.record import Record


def test_a_case_is_compared_with_the_fastest_stock() -> None:
    case = CASES[0]
    measured = {"stock-sync-rows": (4.0, 8.0), "stock-pipelined-rows": (2.0, 5.0), "updraft": (1.0, 3.0)}
    measured["no-udf"] = (0.5, 1.0)
    records = [Record(case.name, name, 5_000_000, [], [wall] * 3, [cpu] * 3) for name, (wall, cpu) in measured.items()]
    seconds, speeds = "0.500 | 2.000 | 1.000", "2.00x | 3.0x | 0.60"
    assert f"| {case.title} | 5M | {seconds} | {speeds} | {case.target.speed:.2f}x |" in page(records)


def test_a_case_that_only_one_side_ran_has_no_line() -> None:
    record = Record(CASES[0].name, "updraft", 1000, [], [1.0], [1.0])
    assert CASES[0].title not in page([record])


def test_every_chart_has_its_part() -> None:
    for name in CHARTS:
        assert f"(images/{name}.svg)" in page([])
