# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from tests.programs.bench.functions_page import Measured, missed, page
from tests.programs.bench.record import Record

RECORDS = [
    Record("rows", "updraft", 640_000, [], [0.2, 0.1, 9.0], [0.128] * 3),
    Record("rows", "arrow-udf", 640_000, [], [1.0] * 3, [0.64] * 3),
    Record("rows", "databend-udf", 20_000, [], [5.0] * 3, [5.0] * 3),
    Record("batch", "updraft", 640_000, [], [0.1] * 3, [0.064] * 3),
    Record("batch", "arrow-udf", 640_000, [], [1.0] * 3, [0.64] * 3),
    Record("batch", "bare", 640_000, [], [0.05] * 3, [0.032] * 3),
]
MEASURED = Measured(2, 1, RECORDS)


def test_every_peer_is_compared_with_the_target() -> None:
    assert list(missed(RECORDS)) == ["a Python function of one value: 5.00 times the rows/s of arrow-udf, target 10"]


def test_the_page_shows_what_was_measured_what_was_missed_and_what_had_fewer_rows() -> None:
    lines = page(MEASURED).splitlines()
    assert "All servers run on one machine with 2 cores and are called in turn." in lines
    assert "| a Python function of one value | Updraft, one worker | 3.2M | 0.20 |  |  |" in lines
    assert "| a Python function of one value | arrow-udf | 0.64M | 1.00 | 5.00x | 10x (missed) |" in lines
    assert "| a Python function of one value | databend-udf | 0.004M | 250.00 | 800.00x | 10x |" in lines
    assert "| a function of a batch | arrow-udf | 0.64M | 1.00 | 10.00x | 10x |" in lines
    assert "| a function of a batch | bare pyarrow.flight | 12.8M | 0.05 | 0.50x |  |" in lines
    assert "databend-udf had 20,000 rows a run for a Python function of one value, so that one takes seconds." in lines


def test_exchanges_at_once_have_a_table_of_their_own(tmp_path: Path) -> None:
    Measured(16, 8, [Record("rows", "updraft", 640_000, [], [0.02], [0.128])]).write(tmp_path / "measured.json")
    lines = page(MEASURED, Measured.read(tmp_path / "measured.json")).splitlines()
    assert "## 8 exchanges at once" in lines
    assert "| a Python function of one value | Updraft, 8 workers | 32M | 0.20 |  |  |" in lines
    assert Measured.read(tmp_path / "none.json") is None
