# SPDX-License-Identifier: Apache-2.0
"""A soak reports what it should, and fails if no process was killed or no query was answered."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from tests.programs.soak.__main__ import violated
from tests.programs.soak.job import ROWS, Job, value
from tests.programs.soak.jobs import MOST_STARTS, run_to_its_end
from tests.programs.soak.kills import Kills
from tests.programs.soak.services import Platform
from tests.programs.soak.trend import Trend
from tests.support.invariants import Invariants
from tests.support.waiting import until

_GOOD: dict[str, Any] = {
    "unanswered": [],
    "growing": [],
    "troubles": ["starts", "samples"],
    "failed_jobs": 0,
    "never_killed": [],
}


class _Answers:
    """Answers and files of a job that has one task with three rows."""

    def __init__(self, directory: Path) -> None:
        self.violations: list[str] = []
        self.invariants = Invariants(self.violations.append)
        application: Any = SimpleNamespace(sparkContext=SimpleNamespace(applicationId="app"))
        self.job = Job(application, 7, directory)
        self.job.directory.mkdir()

    def answer(self, numbers: list[int | None], **changes: list[Any]) -> pa.Table:
        count = len(numbers)
        columns = {
            "tenant": ["soak"] * count,
            "application": ["app-7"] * count,
            "task": [0] * count,
            "attempt": [2] * count,
            "number": numbers,
            "value": [value(0, number, 7) if number is not None else None for number in numbers],
        }
        types = {"tenant": pa.string(), "application": pa.string()}
        filled = {**columns, **changes}
        return pa.table({name: pa.array(filled[name], types.get(name, pa.int64())) for name in columns})


@pytest.fixture
def answers(tmp_path: Path) -> _Answers:
    return _Answers(tmp_path)


_TO = "soak/app-7/0"
_GIVEN = f"{_TO}, attempt 2, was given"


@pytest.mark.parametrize(
    ("numbers", "changes", "found"),
    [
        ([1, 2, 3], {}, []),
        ([1, 3], {}, [f"{_GIVEN} row 3 of {_TO}, attempt 2 where row 2 of 3 was due"]),
        ([1, 2], {}, [f"{_TO} has ended, and row 3 of 3 was due"]),
        ([], {}, [f"{_TO} has ended, and row 1 of 3 was due"]),
        ([1, 2, 2, 3], {}, [f"{_GIVEN} rows 2 to 3 of {_TO}, attempt 2 where row 3 of 3 was due"]),
        ([1, 2, 3, 4], {}, [f"{_GIVEN} rows 1 to 4 of {_TO}, attempt 2 where row 1 of 3 was due"]),
        (
            [2, 1, 3],
            {},
            [
                f"{_GIVEN} row 2 of {_TO}, attempt 2 where row 1 of 3 was due",
                f"{_GIVEN} row 1 of {_TO}, attempt 2 where row 3 of 3 was due",
                f"{_GIVEN} row 3 of {_TO}, attempt 2 where row 2 of 3 was due",
            ],
        ),
        (
            [1, 2, 3],
            {"attempt": [0, 0, 1]},
            [
                f"{_TO}, attempt 0, was given row 3 of {_TO}, attempt 1 where row 3 of 3 was due",
                f"{_TO} has ended, and row 3 of 3 was due",
            ],
        ),
        (
            [1, 2, 3],
            {"task": [0, 0, 1]},
            ["soak/app-7/1 expects nothing and was given a wrong row of soak/app-7/1, attempt 2", f"{_TO} has ended"],
        ),
        (
            [1, 2, 3],
            {"application": ["app-7", "app-7", "app-6"]},
            ["soak/app-6/0 expects nothing", f"{_TO} has ended, and row 3 of 3 was due"],
        ),
        (
            [1, 2, 3],
            {"tenant": ["other", "soak", "soak"]},
            ["other/app-7/0 expects nothing", f"{_GIVEN} rows 2 to 3 of {_TO}, attempt 2 where row 1 of 3 was due"],
        ),
        (
            [1, 2, 3],
            {"value": [value(0, 1, 7), 0, value(0, 3, 7)]},
            [f"{_GIVEN} a wrong row of {_TO}, attempt 2 where row 2 of 3 was due"],
        ),
        (
            [1, 2, 3],
            {"value": [value(0, 1, 7), None, value(0, 3, 7)]},
            [f"{_GIVEN} a wrong row of {_TO}, attempt 2 where row 2 of 3 was due"],
        ),
        ([1, 2, None], {}, [f"{_GIVEN} a wrong row of {_TO}, attempt 2 where row 3 of 3 was due"]),
    ],
)
def test_each_row_that_is_lost_repeated_late_wrong_or_not_of_its_task_is_found(
    answers: _Answers, numbers: list[int | None], changes: dict[str, list[Any]], found: list[str]
) -> None:
    assert answers.job.answered(answers.answer(numbers, **changes), {0: 3}, answers.invariants) == len(numbers)
    assert len(answers.violations) == len(found), answers.violations
    for words, violation in zip(found, answers.violations, strict=True):
        assert violation.startswith(words)


def _write(answers: _Answers, name: str, task: int, numbers: list[int | None]) -> None:
    values = [value(task, number, 7) for number in numbers]
    table = answers.answer(numbers, task=[task] * len(numbers), value=values)
    pq.write_table(table, answers.job.directory / f"{name}.parquet")


def test_four_whole_files_are_right(answers: _Answers) -> None:
    for task in range(4):
        _write(answers, f"part-0000{task}-a-c000", task, list(range(1, ROWS // 4 + 1)))
    assert answers.job.written(answers.invariants) == ROWS
    assert answers.violations == []


def test_a_file_that_cannot_be_read_is_torn(answers: _Answers) -> None:
    (answers.job.directory / "part-00000-a.parquet").write_bytes(b"PAR1")
    answers.job.written(answers.invariants)
    assert answers.violations[0].endswith("it should have 5000 rows of soak/app-7/0 and has nothing")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ({"part-00000-a": range(1, 5000)}, "app-7/part-00000 is torn: it should have 5000 rows"),
        ({"part-00000-a": range(1, 5001), "part-00000-b": range(1, 5001)}, "app-7/part-00000 is published twice"),
        ({}, "app-7/part-00000 has a receipt and does not exist"),
        ({"part-00000-a": range(1, 5001), "part-00009-a": range(1, 5001)}, "app-7/part-00009 is published, and its"),
    ],
)
def test_a_file_that_is_torn_repeated_missing_or_unfinished_is_found(
    answers: _Answers, names: dict[str, range], found: str
) -> None:
    for task in range(1, 4):
        _write(answers, f"part-0000{task}-a", task, list(range(1, ROWS // 4 + 1)))
    for name, numbers in names.items():
        _write(answers, name, 0, list(numbers))
    answers.job.written(answers.invariants)
    assert any(found in violation for violation in answers.violations), answers.violations


class _Query:
    """Query that fails `failures` times before it succeeds."""

    def __init__(self, failures: int) -> None:
        self.starts, self._failures = 0, failures

    def start(self) -> _Query:
        self.starts += 1
        return self

    def awaitTermination(self) -> None:  # noqa: N802
        if self.starts <= self._failures:
            raise StreamingQueryException("its worker has died")


def test_a_query_that_fails_is_started_again_up_to_a_limit() -> None:
    mended = _Query(failures=3)
    run_to_its_end(mended.start)
    assert mended.starts == 4
    broken = _Query(failures=MOST_STARTS)
    with pytest.raises(StreamingQueryException, match="its worker has died"):
        run_to_its_end(broken.start)
    assert broken.starts == MOST_STARTS


def _trend(of: Callable[[int], float], samples: int = 100) -> list[str]:
    trend = Trend(list, [])
    for name in trend.samples:
        trend.samples[name] = [of(number) for number in range(samples)]
    return trend.growing()


def test_what_grows_is_found_and_what_warms_up_or_jumps_is_not() -> None:
    assert _trend(lambda number: 100.0 + 10 * number) == ["memory MiB", "descriptors", "disk MiB", "files"]
    assert _trend(lambda number: 1000.0 if number >= 25 else 10.0) == []
    assert _trend(lambda number: 10_000.0 if number % 10 == 9 else 10.0) == []
    assert _trend(lambda number: 10.0 + 9 * number / 100) == []
    # A soak of a few seconds has too few samples to show a trend.
    assert _trend(lambda number: 100.0 + 100 * number, samples=19) == []


def test_a_sample_counts_processes_and_files(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "file").write_bytes(bytes(2 << 20))
    trend = Trend(lambda: [psutil.Process()], [tmp_path])
    trend.sample()
    assert trend.samples["files"] == [2]
    assert trend.samples["disk MiB"][0] >= 2
    assert trend.samples["memory MiB"][0] > 10
    assert trend.samples["descriptors"][0] >= 3


@pytest.fixture
def victims() -> Iterator[dict[str, psutil.Popen]]:
    with contextlib.ExitStack() as stack:
        started = {}
        for name in ("worker", "zygote", "front", "writer", "executor"):
            started[name] = psutil.Popen(["/bin/sleep", "600"])
            stack.callback(started[name].wait)
            stack.callback(_end, started[name])
        yield started


def _end(process: psutil.Popen) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def _kills(monkeypatch: pytest.MonkeyPatch, victims: dict[str, psutil.Popen]) -> Kills:
    def living(name: str) -> Callable[[], list[psutil.Process]]:
        return lambda: [victims[name]] if victims[name].is_running() and victims[name].poll() is None else []

    monkeypatch.setattr("tests.programs.soak.kills._YOUNG_SECONDS", dict.fromkeys(victims, 0.0))
    monkeypatch.setattr("tests.programs.soak.kills._LISTEN", frozenset[str]())
    nothing: Any = None
    kills = Kills(nothing, nothing, nothing, seed=1)
    kills._find = {name: living(name) for name in victims}
    return kills


def test_one_process_is_killed_at_a_time_until_each_was(
    monkeypatch: pytest.MonkeyPatch, victims: dict[str, psutil.Popen]
) -> None:
    kills = _kills(monkeypatch, victims)
    for killed in range(1, 6):
        assert len(kills.never()) == 6 - killed
        kills.kill_one()
        assert kills.by_victim.total() == killed
        for name in kills.by_victim:
            assert victims[name].wait(60) == -signal.SIGKILL
    assert kills.never() == []
    kills.kill_one()
    assert kills.by_victim.total() == 5


@pytest.mark.parametrize("victim", ["front", "executor"])
def test_who_does_not_listen_yet_is_spared(
    monkeypatch: pytest.MonkeyPatch, victims: dict[str, psutil.Popen], victim: str
) -> None:
    kills = _kills(monkeypatch, victims)
    monkeypatch.setattr("tests.programs.soak.kills._LISTEN", frozenset({victim}))
    kills._find = dict.fromkeys(victims, list) | {victim: kills._find[victim]}
    kills.kill_one()
    assert kills.by_victim.total() == 0
    # This process listens until it is killed.
    listens = "import socket, time; own = socket.create_server(('127.0.0.1', 0)); print(flush=True); time.sleep(600)"
    with psutil.Popen([sys.executable, "-c", listens], stdout=subprocess.PIPE) as ready:
        assert ready.stdout.readline()
        kills._find[victim] = lambda: [ready]
        kills.kill_one()
        assert ready.wait(60) == -signal.SIGKILL
    assert kills.by_victim == {victim: 1}


def test_a_service_that_has_just_ended_has_nobody_to_kill(
    monkeypatch: pytest.MonkeyPatch, victims: dict[str, psutil.Popen]
) -> None:
    def gone() -> list[psutil.Process]:
        raise psutil.NoSuchProcess(1)

    kills = _kills(monkeypatch, victims)
    kills._find = dict.fromkeys(victims, gone) | {"writer": lambda: [victims["writer"]]}
    kills.kill_one()
    assert kills.by_victim == {"writer": 1}


def test_an_error_of_a_thread_beside_the_jobs_is_noted_and_does_not_end_it() -> None:
    def breaks() -> None:
        raise KeyError("no victim")

    with Platform(breaks, 0.001) as platform:
        until("it breaks again", lambda: len(platform.troubles) > 1, timeout_seconds=60)
    assert "KeyError: 'no victim'" in platform.troubles[0]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({}, []),
        ({"unanswered": ["grouped"]}, ["no answer of grouped"]),
        ({"growing": ["files"]}, ["files"]),
        ({"troubles": ["kills", "starts"]}, ["kills"]),
        ({"troubles": ["restarts"]}, ["restarts"]),
        ({"failed_jobs": 2}, ["failed jobs"]),
        ({"never_killed": ["zygote"]}, ["no kill of a zygote"]),
    ],
)
def test_whatever_a_soak_must_not_show_fails_it(bad: dict[str, Any], words: list[str]) -> None:
    assert violated([], **_GOOD | bad) == words
    assert violated(["a row is lost"], **_GOOD | bad) == ["invariants", *words]
