# SPDX-License-Identifier: Apache-2.0
"""Checker of the writer's promises: a missed or unmeasured promise is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs.bench.writer_check import check
from tests.programs.bench.writer_record import Measured, write


def _measured(*, encoder_cpu_s: float, file_bytes: int = 70) -> list[Measured]:
    return [
        Measured("mixed snappy", "compact", 100, 0, file_bytes, [1.0], [encoder_cpu_s]),
        Measured("mixed snappy", "pyarrow", 100, 0, 100, [1.0], [1.0]),
    ]


@pytest.mark.parametrize(
    ("measured", "status"),
    [
        (_measured(encoder_cpu_s=0.5), 0),
        (_measured(encoder_cpu_s=0.6), 1),
        (_measured(encoder_cpu_s=0.5, file_bytes=101), 1),
        ([], 1),
    ],
)
def test_every_promise_has_to_be_kept(tmp_path: Path, measured: list[Measured], status: int) -> None:
    write(measured, tmp_path / "writer.json")
    assert check(tmp_path / "writer.json") == status


def test_no_measurement_at_all_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path / "writer.json") == 1
    assert "run `make bench-writer` first" in capsys.readouterr().out
