# SPDX-License-Identifier: Apache-2.0
"""Failures during a reload: code that does not load, killed processes, and a pool that ends."""

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
from other_processes import named
from pyarrow import flight
from reloaded_pool import Exchange, Pool, answer, until_it_answers
from served_pool import HANG_SECONDS

from updraft.service.child import CRASHES, WINDOW_SECONDS
from updraft.v1.control_pb2 import PoolStatus

ROUNDS = 18
LAST = "x" * ROUNDS
# A pool gives up if its zygotes die more often than this.
PATIENCE_SECONDS = WINDOW_SECONDS + 2.0
SUCCESSOR_ENDED = "while it loaded the functions: the previous ones stay in use"


LOADS_IN_ZYGOTE = """

@function(load="zygote", load_timeout_seconds={limit_seconds})
class {name}:
    def __init__(self) -> None:
        {code}

    def __call__(self, number: int) -> str:
        return "{name}"
"""
LOADS = """
import os
import time

from updraft import function


@function
def good(number: int) -> str:
    return "good"


@function(load="zygote")
class loads_too:
    def __call__(self, number: int) -> str:
        return "too"
""" + LOADS_IN_ZYGOTE.replace("{name}", "loads")


class Bad:
    """Extra module of functions in a pool."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pools: list[Pool] = []

    def write(self, code: str) -> None:
        (self._directory / "bad.py").write_text(code)

    def serve(self, *options: str) -> Pool:
        self._pools.append(Pool(self._directory, "--functions=bad", *options))
        return self._pools[-1]

    def stop(self) -> None:
        for pool in self._pools:
            pool.server.stop()


@pytest.fixture
def bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bad]:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = Bad(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started = Pool(tmp_path)
    yield started
    started.server.stop()


@pytest.mark.parametrize(
    ("code", "how"),
    [
        pytest.param("import os\n\nos._exit(3)\n", "exited with code 3", marks=pytest.mark.campaign),
        ("import os\n\nos._exit(78)\n", "exited with code 78"),
        pytest.param("import ctypes\n\nctypes.string_at(0)\n", "was killed by SIGSEGV", marks=pytest.mark.campaign),
        ("import os\nimport subprocess\n\nsubprocess.Popen(['sleep', '600'])\nos.abort()\n", "was killed by SIGABRT"),
    ],
    ids=["exits", "exits_as_if_the_image_were_broken", "crashes", "leaves_a_process_behind"],
)
def test_a_module_that_ends_the_process_makes_only_itself_unhealthy(bad: Bad, code: str, how: str) -> None:
    fault = f"the module 'bad' of --functions cannot be imported: the process that ran its code {how}"
    bad.write(code)
    pool = bad.serve()
    assert [answer(pool, name) for name in ("version", "model")] == ["a", "a"]
    assert faults(pool) == {"bad": fault}
    pool.wait_for_log(f"{fault}: restarting the zygote without it")
    pool.server.wait_for(lambda: not _sleeping(pool))
    pool.write("bb")
    pool.load_again()
    until_it_answers(pool, "bb")
    assert faults(pool) == {"bad": fault}
    pool.wait_for_log(f"{fault}: starting another next zygote without it")
    pool.server.wait_for(lambda: not _sleeping(pool))
    bad.write("# mended")
    pool.load_again()
    pool.server.wait_for(lambda: not faults(pool))
    pool.wait_until_it_is_whole()


@pytest.mark.parametrize(
    ("code", "how"),
    [
        pytest.param(
            "os.abort()",
            "the process that ran its constructor was killed by SIGABRT",
            marks=pytest.mark.campaign,
        ),
        ("os._exit(0)", "the process that ran its constructor exited with code 0"),
        pytest.param(
            "time.sleep(600)",
            "it did not load within 1 seconds (load_timeout_seconds of the function, or",
            marks=pytest.mark.campaign,
        ),
        ("while True: pass", "it did not load within 1 seconds (load_timeout_seconds of the function, or"),
    ],
)
def test_a_constructor_that_ends_or_hangs_the_process_makes_only_its_function_unhealthy(
    bad: Bad, code: str, how: str
) -> None:
    fault = f"function 'loads' cannot be loaded: {how}"
    bad.write(LOADS.format(code=code, limit_seconds=1 if "within 1 seconds" in how else 600))
    pool = bad.serve()
    assert [answer(pool, name) for name in ("good", "loads_too", "version")] == ["good", "too", "a"]
    assert faults(pool)["loads"].startswith(fault)
    assert list(faults(pool)) == ["loads"]
    with pytest.raises(pa.ArrowException, match="function 'loads' cannot be called: "):
        answer(pool, "loads")
    pool.write("bb")
    pool.load_again()
    until_it_answers(pool, "bb")
    assert list(faults(pool)) == ["loads"]
    bad.write(LOADS.format(code="pass", limit_seconds=600))
    pool.load_again()
    pool.server.wait_for(lambda: not faults(pool))
    assert answer(pool, "loads") == "loads"
    pool.wait_until_it_is_whole()


def test_a_module_that_hangs_makes_only_itself_unhealthy(bad: Bad) -> None:
    bad.write("import time\n\ntime.sleep(600)\n")
    pool = bad.serve("--load-timeout-seconds=2")
    assert answer(pool) == "a"
    fault = "the module 'bad' of --functions cannot be imported: it did not load within 2 seconds"
    assert faults(pool)["bad"].startswith(fault)
    pool.wait_for_log(
        "killing the zygote: the module 'bad' of --functions cannot be imported: it did not load within 2 seconds"
    )


def test_many_that_end_the_process_are_left_out_one_after_the_other(bad: Bad) -> None:
    names = [f"bad_{number}" for number in range(CRASHES + 1)]
    classes = (LOADS_IN_ZYGOTE.format(name=name, code="os.abort()", limit_seconds=600) for name in names)
    bad.write("import os\n\nfrom updraft import function\n" + "".join(classes))
    pool = bad.serve()
    assert list(faults(pool)) == names
    assert answer(pool) == "a"


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
    # Its successor loads the same code.
    pool.loading()
    assert exchange.call(0) == "a"
    pool.let_load()
    until_it_answers(pool, "bb")
    assert exchange.call(0) == "a"
    exchange.close()
    pool.wait_until_it_is_whole()


def test_a_zygote_that_dies_after_it_was_followed_costs_no_exchange(pool: Pool) -> None:
    zygote = psutil.Process(pool.server.ready()["zygote"])
    exchange = Exchange(pool, "waiting")
    assert exchange.call(0) == "a"
    pool.write("bb")
    pool.load_again()
    until_it_answers(pool, "bb")
    # A fork has its zygote's name for a moment.
    pool.server.wait_for(lambda: len(pool.zygotes()) == 2)
    assert zygote.pid in pool.zygotes()
    zygote.kill()
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
                # From zero to about the time that a zygote takes to load.
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


def faults(pool: Pool) -> dict[str, str]:
    """Return the faults of functions that cannot be called, as the pool's status shows them."""
    with pool.server.client() as client:
        (result,) = client.do_action(flight.Action("updraft.pool_status", b""))
    status = PoolStatus.FromString(result.body.to_pybytes())
    return {function.name: function.fault for function in status.functions if function.fault}


def _answers(pool: Pool, version: str) -> bool:
    try:
        return answer(pool) == version
    except (OSError, pa.ArrowException):
        return False


def _sleeping(pool: Pool) -> list[psutil.Process]:
    return named(psutil.Process(pool.server.process.pid).children(recursive=True), "sleep")
