# SPDX-License-Identifier: Apache-2.0
"""Checker of the benchmark's targets: the best stock counts, and a missed or unmeasured target is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs.bench.cases import CASES
from tests.programs.bench.check import check
from tests.programs.bench.record import Record, write
from tests.programs.bench.targets import LIGHTEST

_STOCK = ("stock-sync-rows", "stock-pipelined-rows")


def _measured(speed: float, cpu: float) -> list[Record]:
    """Return all cases at this speed and CPU share of the better stock; the other stock is ten times as slow.

    A case with a higher target than the lightest functions have meets its own.
    """
    records = []
    for case in CASES:
        our_seconds, our_cpu = (0.04, 0.05) if case.target.speed > LIGHTEST.speed else (1.0 / speed, cpu)
        records += [
            Record(case.name, _STOCK[0], case.rows, [], [10.0] * 3, [1.0] * 3),
            Record(case.name, _STOCK[1], case.rows, [], [0.5, 1.0, 9.0], [1.0] * 3),
            Record(case.name, "updraft", case.rows, [], [our_seconds] * 3, [our_cpu] * 3),
        ]
    return records


@pytest.mark.parametrize(
    ("speed", "cpu", "status"),
    [(1.5, 0.7, 0), (1.39, 0.7, 1), (1.5, 0.76, 1), (0.5, 0.7, 1)],
)
def test_every_target_has_to_be_met(tmp_path: Path, speed: float, cpu: float, status: int) -> None:
    write(_measured(speed, cpu), tmp_path / "udf.json")
    assert check(tmp_path / "udf.json") == status


def test_what_is_missed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = _measured(1.5, 0.7)
    slow = next(record for record in records if record.case == "pickled" and record.variant == "updraft")
    slow.wall_s = [1.04] * 3
    write(records, tmp_path / "udf.json")
    assert check(tmp_path / "udf.json") == 1
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "MISSED" in line)
    assert line.split()[:3] == ["pickled", "0.96x", ">="]


def test_a_case_without_a_measurement_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write([record for record in _measured(1.5, 0.7) if record.case != "strings"], tmp_path / "udf.json")
    assert check(tmp_path / "udf.json") == 1
    assert "run `make bench-udf`: strings" in capsys.readouterr().out


def test_no_measurement_at_all_is_a_failure(tmp_path: Path) -> None:
    assert check(tmp_path / "udf.json") == 1
