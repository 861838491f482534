# SPDX-License-Identifier: Apache-2.0
"""Commands `updraft new` and `updraft serve`: from nothing to a call, and from an edit to its answer."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.cli.conftest import Run
from tests.support.paths import PYTHON
from tests.support.waiting import HANG_SECONDS, until

UPDRAFT = [sys.executable, "-c", "from updraft_cli.main import main; main()"]
SCHEMA = pa.schema([pa.field("name", pa.string(), nullable=False)])
NAMES = pa.record_batch({"name": pa.array(["Ada", "Bob"])}, SCHEMA)
BOB = NAMES.slice(1)


@pytest.fixture
def module(tmp_path: Path, typed: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run `updraft new` in the current directory and return the module that it writes."""
    monkeypatch.chdir(tmp_path)
    assert typed("new", "my_functions").returncode == 0
    monkeypatch.chdir(tmp_path / "my_functions")
    return tmp_path / "my_functions/my_functions.py"


@contextmanager
def serving(log: Path, *arguments: str) -> Iterator[Callable[[], str]]:
    """Run `updraft serve`, interrupt it at the end, and yield a function that returns its output so far."""
    with log.open("w") as output:
        process = subprocess.Popen([*UPDRAFT, "serve", *arguments], stdout=output, stderr=subprocess.STDOUT)
    try:
        yield log.read_text
    finally:
        process.send_signal(signal.SIGINT)
        status = process.wait(HANG_SECONDS)
    assert status == 0, log.read_text()


def endpoint(shown: str) -> str:
    return str(re.findall(r"my_functions at (grpc://\S+)", shown)[-1])


def greetings(endpoint: str, names: pa.RecordBatch = NAMES) -> list[str]:
    with flight.connect(endpoint) as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("greeting"))
        with writer:
            writer.begin(SCHEMA)
            writer.write_batch(names)
            writer.done_writing()
            return list(reader.read_all().column(0).to_pylist())


def test_a_new_module_passes_its_tests(module: Path) -> None:
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(tests, cwd=module.parent, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert "2 passed" in ran.stdout, ran.stdout


def test_a_new_module_is_written_as_ruff_writes_it(module: Path) -> None:
    # Isolated, so that the repository's configuration does not apply.
    for command in (["check", "--isolated", "--select", "E,F,I"], ["format", "--isolated", "--check"]):
        ran = subprocess.run([PYTHON.with_name("ruff"), *command, module.parent], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout


def test_an_edit_is_served_when_it_is_saved(module: Path, tmp_path: Path, updraft: Run) -> None:
    with serving(tmp_path / "log", "my_functions", "--port", "0", "--workers", "1") as shown:
        until("it serves", lambda: "Ctrl-C to stop" in shown(), timeout_seconds=2 * HANG_SECONDS)
        assert "greeting(name: string not null, word: string not null = 'Hello') -> string not null" in shown()
        assert "echo" not in shown()
        assert greetings(endpoint(shown())) == ["Hello, Ada!", "Hello, Bob!"]
        module.write_text(module.read_text().replace('"Hello"', '"Hi"'))
        until("it serves again", lambda: shown().count("Ctrl-C to stop") == 2, timeout_seconds=2 * HANG_SECONDS)
        assert "my_functions.py changed" in shown()
        assert greetings(endpoint(shown())) == ["Hi, Ada!", "Hi, Bob!"]
        module.write_text("def broken(:\n")
        refused = "the functions were not reloaded: the previous ones stay in use"
        until("it says what is wrong", lambda: refused in shown(), timeout_seconds=2 * HANG_SECONDS)
        assert "SyntaxError" in shown().split(refused)[1]
        assert "my_functions.py, line 1" in shown()
        listed = updraft("functions", "--endpoint", endpoint(shown())).stdout
        assert "newer functions were refused, so the pool still serves these: " in listed
        assert "SyntaxError" in listed
        assert "ready, newer functions refused" in updraft("status", "--endpoint", endpoint(shown())).stdout
        module.write_text("import os\n\nos._exit(3)\n")
        until("it says so", lambda: shown().count(refused) == 2, timeout_seconds=2 * HANG_SECONDS)
        assert "the process that ran its code exited with code 3" in shown().split(refused)[2]
        assert greetings(endpoint(shown())) == ["Hi, Ada!", "Hi, Bob!"]
    assert len(set(re.findall(r"grpc://\S+", shown()))) == 1


SLOW = """
import os
import time
from pathlib import Path

from updraft import function


@function
def greeting(name: str) -> str:
    Path({place!r}, f"{{name}}-{{os.getpid()}}").touch()
    while not Path({place!r}, f"{{name}}.go").exists():
        time.sleep(0.01)
    return "{word}, " + name
"""


def test_a_call_that_runs_ends_with_its_code_and_the_next_one_has_the_new_code(module: Path, tmp_path: Path) -> None:
    place = tmp_path / "places"
    place.mkdir()
    (place / "Bob.go").touch()
    module.write_text(SLOW.format(place=str(place), word="Hello"))
    with (
        ThreadPoolExecutor(1) as calling,
        serving(tmp_path / "log", "my_functions", "--port", "0", "--workers", "1") as shown,
    ):
        until("it serves", lambda: "Ctrl-C to stop" in shown(), timeout_seconds=2 * HANG_SECONDS)
        running = calling.submit(greetings, endpoint(shown()))
        until("it runs", lambda: list(place.glob("Ada-*")))
        module.write_text(SLOW.format(place=str(place), word="Good morning"))
        until("it serves again", lambda: shown().count("Ctrl-C to stop") == 2, timeout_seconds=2 * HANG_SECONDS)
        assert greetings(endpoint(shown()), BOB) == ["Good morning, Bob"]
        assert not running.done()
        (place / "Ada.go").touch()
        assert running.result(HANG_SECONDS) == ["Hello, Ada", "Hello, Bob"]
        assert greetings(endpoint(shown())) == ["Good morning, Ada", "Good morning, Bob"]


def test_what_is_not_there_is_named(typed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = typed("serve", "nothing_here")
    assert (ended.returncode, "there is no module nothing_here" in ended.stderr) == (1, True)
    assert "`updraft new nothing_here`" in ended.stderr


def test_a_port_that_is_taken_ends_it(module: Path, typed: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ended = typed("serve", "my_functions", "--port", str(other.getsockname()[1]))
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert re.search(r"something else listens on port \d+ .*: serve on a free one, such as --port \d+$", line)


@pytest.mark.parametrize("name", ["my-functions", "class"])
def test_a_name_that_python_cannot_import_is_refused(typed: Run, name: str) -> None:
    ended = typed("new", name)
    assert (ended.returncode, "is not a name for a Python module" in ended.stderr) == (1, True)


def test_a_name_of_pythons_own_library_is_refused(typed: Run) -> None:
    ended = typed("new", "json")
    assert (ended.returncode, "Python has a module json of its own" in ended.stderr) == (1, True)


def test_nothing_is_written_over(typed: Run, module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(module.parent.parent)
    module.write_text("mine")
    ended = typed("new", "my_functions")
    assert (ended.returncode, "exists already" in ended.stderr) == (1, True)
    assert module.read_text() == "mine"
