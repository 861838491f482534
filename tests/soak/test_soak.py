# SPDX-License-Identifier: Apache-2.0
"""A soak finds what it looks for, and proves nothing where nothing was killed or answered."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pyarrow as pa
import pytest

from tests.programs.soak.__main__ import violated
from tests.programs.soak.jobs import Checked, checked
from tests.programs.soak.kills import Kills
from tests.programs.soak.services import Platform
from tests.programs.soak.trend import Trend
from tests.support.waiting import until

_EXPECTED = pd.Series([10, 20, 30], index=[1, 2, 3])
_GOOD: dict[str, Any] = {
    "unanswered": [],
    "growing": [],
    "troubles": ["starts", "samples"],
    "failed_jobs": 0,
    "never_killed": [],
}


@pytest.mark.parametrize(
    ("ids", "values", "found"),
    [
        ([3, 1, 2], [30, 10, 20], Checked(rows=3)),
        ([1, 2, 3], [10, 21, 30], Checked(rows=3, wrong=1)),
        ([1, 2, 3], [10, None, 30], Checked(rows=3, wrong=1)),
        ([1, 3], [10, 30], Checked(rows=2, lost=1)),
        ([1, 2, 2, 3], [10, 20, 20, 30], Checked(rows=4, duplicated=1)),
        ([1, 2, 3, 4], [10, 20, 30, 40], Checked(rows=4, wrong=1)),
        ([1, 1, 4], [10, 11, 40], Checked(rows=3, wrong=2, lost=2, duplicated=1)),
        ([], [], Checked(lost=3)),
    ],
)
def test_each_row_that_is_wrong_lost_or_duplicated_is_counted(
    ids: list[int], values: list[int | None], found: Checked
) -> None:
    answer = pa.table({"id": pa.array(ids, pa.int64()), "value": pa.array(values, pa.int64())})
    assert checked(answer, _EXPECTED) == found
    assert found.is_right == (ids == [3, 1, 2])


def test_answers_add_up() -> None:
    total = Checked(rows=1)
    total.add(Checked(rows=2, wrong=3, lost=4, duplicated=5))
    assert total == Checked(rows=3, wrong=3, lost=4, duplicated=5)


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
    # A soak of a few seconds says nothing.
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
    # It does nothing but listen until it is killed.
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
    assert violated(Checked(rows=1), **_GOOD | bad) == words
    assert violated(Checked(rows=1, lost=1), **_GOOD | bad) == ["rows", *words]
