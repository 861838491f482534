# SPDX-License-Identifier: Apache-2.0
"""What a reload meets: code that does not load, processes that are killed in the middle of it, and a pool that ends."""

import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from reloaded_pool import Exchange, Pool, answer, until_it_answers
from served_pool import HANG_SECONDS

from updraft.service.crashes import CRASHES, WINDOW_SECONDS

ROUNDS = 18
LAST = "x" * ROUNDS
# A pool whose zygotes die more often gives up.
PATIENCE_SECONDS = WINDOW_SECONDS + 2.0
SUCCESSOR_ENDED = "while it loaded the functions: they serve on as they were"


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started = Pool(tmp_path)
    yield started
    started.server.stop()


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("import os\n\nos._exit(3)\n", "exited with code 3"),
        ("import ctypes\n\nctypes.string_at(0)\n", "was killed by SIGSEGV"),
        ("import os\n\nos.abort()\n", "was killed by SIGABRT"),
        ("import os\nimport subprocess\n\nsubprocess.Popen(['sleep', '600'])\nos._exit(3)\n", "exited with code 3"),
    ],
    ids=["exits", "crashes", "aborts", "leaves_a_process_behind"],
)
def test_code_that_ends_its_process_leaves_what_is_there(pool: Pool, code: str, how: str) -> None:
    pool.write("bb", first=code)
    pool.load_again()
    pool.wait_for_log(f"the next zygote {how} {SUCCESSOR_ENDED}")
    assert [answer(pool, name) for name in ("version", "model")] == ["a", "a"]
    pool.server.wait_for(lambda: not _sleeping(pool))
    pool.write("bb")
    pool.load_again()
    until_it_answers(pool, "bb")
    pool.wait_until_it_is_whole()


@pytest.mark.parametrize("code", ["import ctypes\n\nctypes.string_at(0)\n", "import os\n\nos._exit(0)\n"])
def test_a_module_that_ends_the_process_at_the_start_makes_only_itself_unhealthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "ends_everything.py").write_text(code)
    pool = Pool(tmp_path, "--functions=ends_everything")
    try:
        assert [answer(pool, name) for name in ("version", "model")] == ["a", "a"]
        pool.wait_for_log("the code of 'ends_everything', a module of --functions, ended the zygote")
        pool.wait_for_log("the module 'ends_everything' of --functions cannot be imported")
        (tmp_path / "ends_everything.py").write_text("# mended\n")
        pool.write("bb")
        pool.load_again()
        until_it_answers(pool, "bb")
        pool.wait_until_it_is_whole()
    finally:
        pool.server.stop()


def test_code_that_hangs_while_it_is_loaded_holds_nobody_up_and_gives_way_to_the_next(pool: Pool) -> None:
    pool.write_what_loads_when_it_may("bb")
    pool.load_again()
    hanging = pool.loading()
    assert [answer(pool, name) for name in ("version", "model")] == ["a", "a"]
    pool.write("ccc")
    pool.load_again()
    until_it_answers(pool, "ccc")
    pool.server.wait_for(lambda: not hanging.is_running())
    pool.wait_until_it_is_whole()


def test_a_zygote_that_is_killed_while_it_loads_leaves_what_is_there(pool: Pool) -> None:
    pool.write_what_loads_when_it_may("bb")
    pool.load_again()
    pool.loading().kill()
    pool.wait_for_log(f"the next zygote was killed by SIGKILL {SUCCESSOR_ENDED}")
    assert answer(pool) == "a"
    pool.let_load()
    pool.load_again()
    until_it_answers(pool, "bb")
    pool.wait_until_it_is_whole()


def test_a_zygote_that_dies_while_the_next_one_loads_costs_no_exchange(pool: Pool) -> None:
    exchange = Exchange(pool, "version")
    assert exchange.call(0) == "a"
    pool.write_what_loads_when_it_may("bb")
    pool.load_again()
    pool.loading()
    psutil.Process(pool.server.ready()["zygote"]).kill()
    # It is followed by another one that loads the same.
    pool.loading()
    assert exchange.call(0) == "a"
    pool.let_load()
    until_it_answers(pool, "bb")
    assert exchange.call(0) == "a"
    exchange.close()
    pool.wait_until_it_is_whole()


def test_a_zygote_that_dies_after_it_was_followed_costs_no_exchange(pool: Pool) -> None:
    zygote = pool.zygotes()
    exchange = Exchange(pool, "waiting")
    assert exchange.call(0) == "a"
    pool.write("bb")
    pool.load_again()
    until_it_answers(pool, "bb")
    assert len(pool.zygotes()) == 2
    psutil.Process(zygote.pop()).kill()
    pool.server.wait_for(lambda: len(pool.zygotes()) == 1)
    assert exchange.call(0) == "a"
    exchange.close()
    assert answer(pool) == "bb"


def test_a_front_that_dies_while_a_zygote_loads_is_followed_by_one_with_the_new_code(pool: Pool) -> None:
    pool.write_what_loads_when_it_may("bb")
    pool.load_again()
    hanging = pool.loading()
    psutil.Process(pool.server.ready()["front"]).kill()
    pool.loading()
    assert not hanging.is_running()
    pool.let_load()
    pool.server.wait_for(lambda: _answers(pool, "bb"))
    pool.wait_until_it_is_whole()


@pytest.mark.parametrize("first", ["reload", "drain"])
def test_a_pool_that_drains_loads_nothing_more(pool: Pool, first: str) -> None:
    exchange = Exchange(pool, "version")
    assert exchange.call(0) == "a"
    pool.write_what_loads_when_it_may("bb")
    if first == "reload":
        pool.load_again()
        pool.loading()
    pool.server.process.terminate()
    pool.wait_for_log("draining")
    if first == "drain":
        pool.load_again()
    assert exchange.call(0) == "a"
    exchange.close()
    assert pool.server.process.wait(HANG_SECONDS) == 0


@pytest.mark.timeout(240)
def test_reloads_and_kills_at_random_cost_no_exchange_and_leave_the_last_code(pool: Pool) -> None:
    chance = random.Random(1)
    kills = deque([-PATIENCE_SECONDS] * (CRASHES - 1), maxlen=CRASHES - 1)
    ended = threading.Event()
    heard: list[list[str]] = [[], []]

    def call(versions: list[str]) -> None:
        while not ended.is_set():
            versions.append(answer(pool))

    with ThreadPoolExecutor(len(heard)) as clients:
        calling = [clients.submit(call, versions) for versions in heard]
        try:
            for length in range(2, ROUNDS):
                pool.write("x" * length)
                pool.load_again()
                # From nothing to about what a zygote takes to load.
                ended.wait(chance.uniform(0.0, 2.0))
                zygotes = pool.zygotes()
                if not zygotes or time.monotonic() - kills[0] < PATIENCE_SECONDS:
                    continue
                with suppress(psutil.NoSuchProcess):
                    psutil.Process(chance.choice(zygotes)).kill()
                    kills.append(time.monotonic())
            pool.write(LAST)
            pool.load_again()
            pool.server.wait_for(lambda: all(LAST in versions for versions in heard))
        finally:
            ended.set()
        for each in calling:
            each.result()
    assert heard == [sorted(versions) for versions in heard]
    assert answer(pool, "model") == LAST
    pool.wait_until_it_is_whole()


def _answers(pool: Pool, version: str) -> bool:
    try:
        return answer(pool) == version
    except (OSError, pa.ArrowException):
        return False


def _sleeping(pool: Pool) -> list[psutil.Process]:
    children = psutil.Process(pool.server.process.pid).children(recursive=True)
    return [process for process in children if process.name() == "sleep"]
