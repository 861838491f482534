# SPDX-License-Identifier: Apache-2.0
"""Reload of functions with SIGUSR2 while clients call them."""

import functools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight
from reloaded_pool import Exchange, Pool, answer, until_it_answers
from served_pool import HANG_SECONDS


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started = Pool(tmp_path)
    yield started
    started.server.stop()


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
    # All processes that run the old code end.
    pool.server.wait_for(lambda: not before.keys() & pool.processes().keys())
    pool.wait_until_it_is_whole()


def test_a_corrected_function_is_not_held_back_for_what_its_old_code_did(pool: Pool) -> None:
    def refusal() -> str:
        with pytest.raises((flight.FlightError, pa.ArrowInvalid)) as refused:
            answer(pool, "crashing")
        return str(refused.value)

    pool.server.wait_for(lambda: "is held back" in refusal())
    pool.write("bb")
    pool.load_again()
    until_it_answers(pool, "bb")
    assert answer(pool, "crashing") == "bb"


def test_signals_in_a_row_end_with_the_last_code(pool: Pool) -> None:
    for length in range(2, 7):
        pool.write("x" * length)
        pool.load_again()
    until_it_answers(pool, "x" * 6)
    pool.wait_until_it_is_whole()
    # The declarations of the functions are unchanged; only their code is new.
    pool.wait_for_log("the functions were reloaded")
    for trouble in ("while it loaded the functions", "restarting", "giving up"):
        assert trouble not in pool.log()


def test_a_mistake_in_new_code_takes_no_function_away(pool: Pool) -> None:
    before = pool.zygotes()
    pool.write("bb", first="def broken(:\n")
    pool.load_again()
    pool.wait_for_log("the functions were not reloaded: the previous ones stay in use")
    assert "SyntaxError" in pool.log()
    assert "SyntaxError" in pool.server.status().reload_fault
    assert "SyntaxError" in pool.server.ready()["reload_fault"]
    pool.server.wait_for(lambda: "were not reloaded, and the previous ones stay in use" in pool.server.page("/status"))
    assert pool.zygotes() == before
    assert [answer(pool, name) for name in ("version", "model")] == ["a", "a"]
    assert pool.server.ready()["refused_reloads"] == 1
    pool.load_again()
    pool.server.wait_for(lambda: pool.server.ready()["refused_reloads"] == 2)
    pool.write("ccc")
    pool.load_again()
    until_it_answers(pool, "ccc")
    assert not pool.server.status().reload_fault
    pool.wait_until_it_is_whole()
