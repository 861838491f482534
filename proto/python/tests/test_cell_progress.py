# SPDX-License-Identifier: Apache-2.0
"""Line that a cell shows while functions run."""

from __future__ import annotations

import io
import itertools
import threading
import time
from typing import Any

import pytest

from updraft.spark import cell_progress
from updraft.spark.cell_progress import CellProgress, progress_line


def _status(at: int, *, rate: float = 0.0, is_open: int = 0, rows: int = 0) -> dict[str, Any]:
    return {
        "rows": rows,
        "at": str(at),
        "workers": {"busy": is_open, "configured": 2},
        "queue": {"waiting": 3},
        "exchanges_open": is_open,
        "history": {"interval_seconds": 2.0, "rows_per_second": [9.0, rate], "busy": [0, is_open]},
    }


def test_the_line_has_rows_rate_workers_tasks_and_an_estimate() -> None:
    line = progress_line(_status(1, rate=1500.0, is_open=1), 12345, (2, 8), 10.0)
    assert line == ("updraft: 12,345 rows, 1,500 rows/s, 1 of 2 workers busy, 3 waiting, 2 of 8 tasks, about 30 s left")
    assert progress_line(_status(1), 0, (0, 8), 1.0).endswith("3 waiting, 0 of 8 tasks")
    assert progress_line(_status(1), 0, None, 1.0).endswith("3 waiting")


def test_an_estimate_counts_down_while_tasks_run_and_is_left_out_once_it_is_wrong() -> None:
    ends = [progress_line(_status(1), 0, (1, 2), seconds, 4.0).rpartition(", ")[2] for seconds in (5.0, 7.0, 9.0)]
    assert ends == ["about 3 s left", "about 1 s left", "1 of 2 tasks"]


def test_a_long_batch_does_not_look_like_a_standstill() -> None:
    assert "400 rows, 100 rows/s, " in progress_line(_status(1, is_open=1), 400, None, 4.0)


def test_the_age_of_the_last_completed_task_reaches_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_progress, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(cell_progress, "_tasks", lambda: (1, 1000))
    seconds = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))
    shown: list[str] = []
    at = itertools.count()
    progress = CellProgress(lambda: _status(next(at), is_open=1), shown.append)
    progress.begin()
    while len(shown) < 3:
        pass
    progress.end()
    left = [int(line.split()[-3]) for line in shown]
    assert left == sorted(left, reverse=True)
    assert left[0] > left[-1]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_shows_one_line_that_is_gone_after_the_cell(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr(cell_progress, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(cell_progress, "_tasks", lambda: None)
    monkeypatch.setattr(cell_progress, "_is_in_notebook", lambda: False)
    terminal, asked = io.StringIO(), itertools.count()
    monkeypatch.setattr(terminal, "isatty", lambda: is_terminal)
    monkeypatch.setattr("sys.stderr", terminal)
    progress = CellProgress(lambda: _status(next(asked), is_open=1))
    progress.begin()
    while next(asked) < 10:
        time.sleep(0.001)
    progress.end()
    first, *lines = terminal.getvalue().split("\r")
    assert first == ""
    if is_terminal:
        assert len(lines) > 1
        assert all(line.startswith("updraft: ") and line.endswith("waiting\x1b[K") for line in lines[:-1])
        assert lines[-1] == "\x1b[K"
    else:
        assert lines == []


def test_time_before_the_pool_works_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_progress, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(cell_progress, "_tasks", lambda: (1, 4))
    shown: list[str] = []
    begun = time.monotonic()
    answers = [_status(at) for at in range(400)] + [_status(500, is_open=1)]
    progress = CellProgress(lambda: answers.pop(0) if len(answers) > 1 else answers[0], shown.append)
    progress.begin()
    while not shown:
        time.sleep(0.001)
    progress.end()
    assert time.monotonic() - begun > 0.4
    # A sample covers 2 seconds.
    assert shown[0].endswith("1 of 4 tasks, about 6 s left")


def test_samples_are_counted_once_and_a_pool_that_rests_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_progress, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(cell_progress, "_tasks", lambda: None)
    shown: list[str] = []
    answers = [
        # From before the cell, when a function of another cell was running.
        _status(1, rate=500.0, is_open=1, rows=1000),
        _status(1, rate=500.0, is_open=1, rows=1000),
        _status(2, rate=10.0, is_open=1, rows=1020),
        _status(2, rate=10.0, is_open=1, rows=1020),
        _status(3, rate=20.0, is_open=1, rows=1060),
    ]

    def status() -> dict[str, Any]:
        if not answers:
            raise OSError("the pool does not answer")
        return answers.pop(0)

    progress = CellProgress(status, shown.append)
    progress.begin()
    while answers:
        pass
    progress.end()
    assert [line.split(",")[0] for line in shown] == ["updraft: 20 rows", "updraft: 60 rows"]


def test_a_front_that_was_replaced_takes_no_rows_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_progress, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(cell_progress, "_tasks", lambda: None)
    shown: list[str] = []
    answers = [_status(at, is_open=1, rows=rows) for at, rows in enumerate([0, 100, 0, 7])]
    progress = CellProgress(lambda: answers.pop(0) if len(answers) > 1 else answers[0], shown.append)
    progress.begin()
    while len(shown) < 3:
        time.sleep(0.001)
    progress.end()
    assert [line.split(",")[0] for line in shown] == ["updraft: 100 rows", "updraft: 100 rows", "updraft: 107 rows"]


def test_a_pool_that_does_not_answer_holds_up_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_progress, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(cell_progress, "_END_TIMEOUT_SECONDS", 0.01)
    monkeypatch.setattr(cell_progress, "_tasks", lambda: None)
    shown: list[str] = []
    asked, answers = threading.Event(), threading.Event()
    at = 0

    def status() -> dict[str, Any]:
        nonlocal at
        at += 1
        asked.set()
        answers.wait(60)
        return _status(at, is_open=1)

    progress = CellProgress(status, shown.append)
    progress.begin()
    first = next(thread for thread in threading.enumerate() if thread.name == "updraft-progress")
    assert asked.wait(60)
    progress.end()
    progress.begin()
    answers.set()
    first.join(60)
    assert not first.is_alive(), "the thread of the first cell ends, though another cell runs"
    while not shown:
        time.sleep(0.001)
    progress.end()
