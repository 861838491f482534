# SPDX-License-Identifier: Apache-2.0
"""Commands `updraft logs` and `updraft profile`: output of a user's own calls, and where they spend their time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from tests.cli.conftest import Run
from tests.support.pool import LocalPool
from tests.support.waiting import until

_UPDRAFT = (sys.executable, "-c", "from updraft_cli.main import main; main()")
_MODULE = """
import time
from updraft import function

@function
def talks(text: str) -> str:
    print("heard", text, flush=True)
    return text

@function
def counts(n: int) -> int:
    for number in range(n):
        print("number", number, flush=True)
    return n

@function
def works(seconds: float) -> float:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        computes()
    return seconds

def computes():
    return sum(range(2000))
"""


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    directory = tmp_path_factory.mktemp("modules")
    (directory / "talking.py").write_text(_MODULE)
    with (
        mock.patch.dict(os.environ, PYTHONPATH=str(directory)),
        LocalPool(workers=2, arguments=["--functions", "talking"]) as running,
    ):
        yield running


@pytest.fixture
def ask(talking: LocalPool, typed: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("UPDRAFT_CLIENT_ENDPOINT", talking.tcp_endpoint)
    return typed


def test_lines_of_own_calls_are_shown(ask: Run, log_key_file: Path, tmp_path: Path) -> None:
    assert ask("call", "talks", "--arg", "text=Ada").returncode == 0
    assert log_key_file.stat().st_mode & 0o777 == 0o600
    shown = ask("logs")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \[talks\] heard Ada\n", shown.stdout)
    assert (shown.stderr, shown.returncode) == ("", 0)
    ask("call", "counts", "--arg", "n=3")
    assert [line.partition("] ")[2] for line in ask("logs", "counts", "--lines", "2").stdout.splitlines()] == [
        "number 1",
        "number 2",
    ]
    (line,) = map(json.loads, ask("logs", "talks", "--output", "json").stdout.splitlines())
    assert (line["line"], line["function"]) == ("heard Ada", "talks")
    worker = f"worker={line['worker']}"
    assert "heard Ada" in ask("logs", "--where", worker).stdout
    assert ask("logs", "--where", worker, "--where", "stage=3.0").stdout == ""


def test_nobody_sees_the_lines_of_another_user(ask: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask("call", "talks", "--arg", "text=secret")
    monkeypatch.setenv("UPDRAFT_CLIENT_LOG_KEY_FILE", str(tmp_path / "other"))
    assert ask("logs").stdout == ""
    refused = ask("logs", "--all")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "scope admin" in refused.stderr


def test_a_user_without_a_place_for_the_secret_still_calls(
    ask: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("UPDRAFT_CLIENT_LOG_KEY_FILE", str(tmp_path / "file/log-key"))
    assert ask("call", "talks", "--arg", "text=Ada").stdout == "Ada\n"
    failed = ask("logs")
    assert (failed.returncode, "cannot be made for the log key" in failed.stderr) == (1, True)


def test_lines_are_followed_until_the_command_is_interrupted(ask: Run, talking: LocalPool) -> None:
    ask("call", "talks", "--arg", "text=before")
    command = [*_UPDRAFT, "logs", "--follow", "--lines", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        lines: list[str] = []
        reading = threading.Thread(target=lambda: lines.extend(iter(following.stdout.readline, "")))  # type: ignore[union-attr]
        reading.start()

        def has_seen() -> bool:
            ask("call", "talks", "--arg", "text=later")
            return bool(lines)

        try:
            until("a line", has_seen)
            following.send_signal(signal.SIGINT)
            assert following.wait(60) == 0
        finally:
            following.kill()
        reading.join()
    assert all(line.endswith("[talks] heard later\n") for line in lines)


def test_a_flame_graph_shows_where_a_call_spends_its_time(ask: Run, talking: LocalPool, tmp_path: Path) -> None:
    drawing, folded = tmp_path / "works.svg", tmp_path / "works.txt"
    command = [*_UPDRAFT, "call", "works", "--arg", "seconds=30"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as calling:
        try:
            brief = ("profile", "works", "--seconds", "0.1", "--output", str(folded))
            until("a call", lambda: ask(*brief).returncode == 0)
            for path in (drawing, folded):
                shown = ask("profile", "works", "--seconds", "1", "--output", str(path))
                assert re.fullmatch(rf"{re.escape(str(path))}: \d+ samples\n", shown.stdout)
        finally:
            calling.kill()
    titles = [title.text or "" for title in ElementTree.parse(drawing).iter("{http://www.w3.org/2000/svg}title")]
    assert any(title.startswith("computes (") for title in titles)
    assert titles[0].startswith("works: ")
    assert any(";computes (" in line for line in folded.read_text().splitlines())


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("profile", "works", "--seconds", "0.1"), 1, "no call of your own of works ran in these 0.1 seconds"),
        (("profile", "--all"), 1, "--allow-remote-stacks"),
        (("profile", "--output", "x.png"), 2, "x.png: the name of a profile must end in .svg or .txt"),
        (("profile", "--seconds", "61"), 2, "less than or equal to 60"),
        (("logs", "--where", "stage"), 2, "--where stage: expected FIELD=VALUE"),
        (("logs", "--lines", "2001"), 2, "less than or equal to 2000"),
    ],
)
def test_what_cannot_be_shown_is_explained_in_a_line(
    ask: Run, arguments: tuple[str, ...], status: int, says: str
) -> None:
    answer = ask(*arguments)
    assert (answer.returncode, len(answer.stderr.splitlines())) == (status, 1)
    assert says in answer.stderr


@pytest.mark.parametrize("command", ["logs", "profile"])
def test_a_pool_has_to_be_named(typed: Run, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = typed(command)
    assert (answer.returncode, "name a pool with --endpoint" in answer.stderr) == (2, True)
    monkeypatch.setenv("UPDRAFT_CLIENT_ENDPOINT", "pool:8815")
    answer = typed(command)
    assert (answer.returncode, "'pool:8815' is not an endpoint" in answer.stderr) == (2, True)
    assert f"examples:\n  updraft {command}" in typed(command, "--help").stdout


def test_a_shell_completes_both_commands(typed: Run) -> None:
    script = typed("completion", "bash").stdout
    for name in ("logs", "profile", "--follow", "--where", "--seconds"):
        assert name in script
