# SPDX-License-Identifier: Apache-2.0
"""A served pool that is told to load its functions again, with SIGUSR2, while clients call them."""

import functools
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyarrow import flight
from served_pool import HANG_SECONDS, Server

NUMBERS = pa.schema([pa.field("number", pa.int64(), nullable=False)])
MODULE = "reloaded_functions"
_NAMES = ("updraft-zygote", "updraft-worker", "updraft-model")
# The length of the text is the version: Python may take files of one length and second for one another.
TEXT = """
import time
from pathlib import Path

import pyarrow as pa

from updraft import function
from updraft.functions import Arrow, Batching

VERSION = "{version}"


@function
def version(number: int) -> str:
    return VERSION


@function
def waiting(number: int) -> str:
    \"\"\"As `version`, and for the number 1 once there is a file.\"\"\"
    while number == 1 and not Path({go!r}).exists():
        time.sleep(0.01)
    return VERSION


@function(batching=Batching(wait_seconds=0.0))
def model(number: Arrow[int]) -> Arrow[str]:
    return pa.array([waiting(each) for each in number.to_pylist()])
"""


class Pool:
    """With functions whose code changes."""

    def __init__(self, directory: Path) -> None:
        self._module = directory / f"{MODULE}.py"
        self._go = directory / "go"
        self.write("a")
        self._log = directory / "log"
        with self._log.open("w") as log:
            self.server = Server(directory, f"--functions={MODULE}", "--workers=2", stderr=log)

    def write(self, version: str) -> None:
        self._module.write_text(TEXT.format(version=version, go=str(self._go)))

    def write_what_ends_its_process(self) -> None:
        self._module.write_text("import os\n\nos._exit(3)\n")

    def go_on(self) -> None:
        self._go.touch()

    def load_again(self) -> None:
        self.server.process.send_signal(signal.SIGUSR2)

    def log(self) -> str:
        return self._log.read_text()

    def processes(self) -> dict[int, str]:
        """By their ids; without what measures and empties scratch directories now and then."""
        found = {}
        for process in psutil.Process(self.server.process.pid).children(recursive=True):
            try:
                found[process.pid] = process.name()
            except psutil.NoSuchProcess:
                continue
        return {
            pid: name for pid, name in found.items() if name in ("updraft-zygote", "updraft-worker", "updraft-model")
        }


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started = Pool(tmp_path)
    yield started
    started.server.stop()


class Exchange:
    """One of a plain client."""

    def __init__(self, pool: Pool, name: str) -> None:
        self._client = pool.server.client()
        options = flight.FlightCallOptions(timeout=HANG_SECONDS)
        self._writer, self._reader = self._client.do_exchange(flight.FlightDescriptor.for_path(name), options=options)
        self._writer.begin(NUMBERS)

    def call(self, number: int) -> str:
        self._writer.write_batch(pa.record_batch([pa.array([number])], schema=NUMBERS))
        return str(self._reader.read_chunk().data.column(0)[0])

    def close(self) -> None:
        self._writer.done_writing()
        with pytest.raises(StopIteration):
            self._reader.read_chunk()
        self._client.close()


def answer(pool: Pool, name: str = "version") -> str:
    exchange = Exchange(pool, name)
    version = exchange.call(0)
    exchange.close()
    return version


def until_it_answers(pool: Pool, version: str) -> None:
    pool.server.wait_for(lambda: answer(pool) == version)


def test_no_exchange_is_dropped_and_none_gets_the_old_code_after_the_new(pool: Pool) -> None:
    names = ("version", "version", "model")
    ended = threading.Event()
    heard: list[list[str]] = [[] for _ in names]

    def are_heard(version: str) -> bool:
        return all(version in versions for versions in heard)

    def call(name: str, versions: list[str]) -> None:
        while not ended.is_set():
            versions.append(answer(pool, name))

    with ThreadPoolExecutor(len(names)) as clients:
        calling = [clients.submit(call, name, versions) for name, versions in zip(names, heard, strict=True)]
        try:
            for version in ("a", "bb", "ccc"):
                pool.write(version)
                pool.load_again()
                pool.server.wait_for(functools.partial(are_heard, version))
        finally:
            ended.set()
        for each in calling:
            each.result()
    assert heard == [sorted(versions) for versions in heard]


@pytest.mark.parametrize("name", ["waiting", "model"])
def test_an_exchange_that_runs_ends_with_the_code_with_which_it_began(pool: Pool, name: str) -> None:
    exchange = Exchange(pool, name)
    assert exchange.call(0) == "a"
    before = pool.processes()
    with ThreadPoolExecutor(1) as calling:
        running = calling.submit(exchange.call, 1)
        pool.write("bb")
        pool.load_again()
        until_it_answers(pool, "bb")
        assert answer(pool, name) == "bb"
        assert not running.done()
        pool.go_on()
        assert running.result(HANG_SECONDS) == "a"
    assert exchange.call(0) == "a"
    exchange.close()
    # With it goes all that had the old code.
    pool.server.wait_for(lambda: not before.keys() & pool.processes().keys())
    assert sorted(pool.processes().values()) == ["updraft-model", "updraft-worker", "updraft-worker", "updraft-zygote"]


def test_code_that_ends_its_process_leaves_what_is_there(pool: Pool) -> None:
    pool.write_what_ends_its_process()
    pool.load_again()
    pool.server.wait_for(lambda: "the next zygote exited with code 3 while it loaded the functions" in pool.log())
    assert [answer(pool, name) for name in ("version", "model")] == ["a", "a"]
    pool.write("bb")
    pool.load_again()
    until_it_answers(pool, "bb")


def test_signals_in_a_row_end_with_the_last_code(pool: Pool) -> None:
    for length in range(2, 7):
        pool.write("x" * length)
        pool.load_again()
    until_it_answers(pool, "x" * 6)
    pool.server.wait_for(lambda: len(pool.processes()) == 4)
    assert "crash" not in pool.log()


def test_a_zygote_that_dies_after_it_was_followed_costs_no_exchange(pool: Pool) -> None:
    zygote = _zygotes(pool)
    exchange = Exchange(pool, "waiting")
    assert exchange.call(0) == "a"
    pool.write("bb")
    pool.load_again()
    until_it_answers(pool, "bb")
    assert len(_zygotes(pool)) == 2
    psutil.Process(zygote.pop()).kill()
    pool.server.wait_for(lambda: len(_zygotes(pool)) == 1)
    assert exchange.call(0) == "a"
    exchange.close()
    assert answer(pool) == "bb"


def _zygotes(pool: Pool) -> list[int]:
    return [pid for pid, name in pool.processes().items() if name == "updraft-zygote"]
