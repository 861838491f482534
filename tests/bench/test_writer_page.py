# SPDX-License-Identifier: Apache-2.0
from tests.programs.bench.writer_page import page
from tests.programs.bench.writer_record import Measured
from tests.programs.bench.writer_targets import promises

MEASURED = [
    Measured("mixed snappy", "compact", 200_000_000, 0, 30_000_000, [0.2], [0.1]),
    Measured("mixed snappy", "updraft", 200_000_000, 0, 40_000_000, [0.2], [0.16]),
    Measured("mixed snappy", "pyarrow", 200_000_000, 0, 40_000_000, [0.3], [0.2]),
    Measured("slow sink", "asynchronous", 1000, 16, 500, [1.0, 1.2, 9.0], [0.5], [33 << 20, 60 << 20]),
    Measured("slow sink", "synchronous", 1000, 16, 500, [1.5], [0.5], [10 << 20]),
    Measured("query of expressions", "spark", 1000, 256, 400_000_000, [3.0], [4.0]),
    Measured("query of expressions", "updraft", 1000, 256, 300_000_000, [2.0], [3.0]),
    Measured("query of expressions", "updraft unix", 1000, 256, 300_000_000, [1.5], [3.0]),
    Measured("small files x 128", "synced", 60_000_000, 0, 1000, [0.6], [0.4]),
    Measured("small files x 128", "unsynced", 60_000_000, 0, 1000, [0.5], [0.4]),
]


def test_every_promise_is_compared_with_what_was_measured() -> None:
    found = [(round(promise.ratio, 2), promise.is_kept) for promise in promises(MEASURED)]
    assert found == [(2.0, True), (1.25, False), (1.25, False), (1.5, True), (2.0, True)]


def test_a_larger_file_keeps_no_promise() -> None:
    ours, base = MEASURED[0], MEASURED[2]
    larger = Measured(ours.case, ours.variant, ours.raw_bytes, 0, base.file_bytes + 1, ours.wall_s, ours.cpu_s)
    assert not any(promise.is_kept for promise in promises([larger, base]))


def test_the_page_shows_what_was_measured_and_what_was_missed() -> None:
    lines = page(MEASURED).splitlines()
    assert "| asynchronous against synchronous, slow sink, 16 MiB | 1.25 (missed) | 1.3 |" in lines
    assert "| slow | 16 | 1.50 | 1.20 | 1.25 | 60 |" in lines
    assert "| query of expressions | `parquet` | 3.00 | 4.00 | 400 |" in lines
    assert "| small files x 128 | 0.60 | 0.50 | 100 | 120 |" in lines
    assert "| mixed, snappy | 1250 (1.00) | 2000 (0.75) | 1000 (1.00) | - |" in lines
