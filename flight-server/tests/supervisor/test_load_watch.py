# SPDX-License-Identifier: Apache-2.0
"""Limit on the time in which a zygote loads its image, and warnings in the log. The tests call the check directly."""

import itertools
import subprocess
import sys
from collections.abc import Iterator

import pytest

from updraft_server.ipc.load import Load, LoadingNote
from updraft_server.linux.process_trees import process_trees
from updraft_server.supervisor.zygote_child import LoadWatch

FUNCTION = Load("shop", "price", "1", 60.0)
LEAK = """
print(flush=True)
input()
leaked = b"x" * (100 << 20)
print(flush=True)
input()
"""


@pytest.fixture
def note() -> Iterator[LoadingNote]:
    made = LoadingNote.made()
    yield made
    made.close()


def watch_of(note: LoadingNote) -> LoadWatch:
    """Return a watch of a zygote that uses next to no memory."""
    return LoadWatch(note, lambda: 1, 1 << 30)


def looks_until_late(watch: LoadWatch, most: int = 1000) -> int:
    for looks in range(1, most):
        watch.look()
        if watch.excess:
            return looks
    return most


def test_a_load_is_late_once_whole_seconds_of_its_limit_have_been_seen(note: LoadingNote) -> None:
    watch = watch_of(note)
    with note.of(Load("slow", limit_seconds=5.0)):
        assert looks_until_late(watch) == 6
    watch.look()
    assert (watch.load, watch.excess) == (None, None)


def test_each_load_has_its_own_time(note: LoadingNote) -> None:
    watch = watch_of(note)
    for number in range(10):
        with note.of(Load("shop", f"f{number}", "1", 5.0)):
            assert looks_until_late(watch, 5) == 5
    with note.of(Load("shop", "f10", "1", 0.5)):
        assert looks_until_late(watch) == 2


def test_a_load_without_a_limit_is_never_late(note: LoadingNote) -> None:
    with note.of(Load("slow")):
        assert looks_until_late(watch_of(note), 2000) == 2000


def test_a_load_that_takes_too_much_memory_is_ended_and_told_so(note: LoadingNote) -> None:
    with subprocess.Popen([sys.executable, "-c", LEAK], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as leaking:
        assert leaking.stdin is not None
        assert leaking.stdout is not None
        watch = LoadWatch(note, lambda: process_trees([leaking.pid])[leaking.pid].own_bytes, 100 << 20)
        with note.of(FUNCTION):
            leaking.stdout.readline()
            watch.look()
            assert watch.excess is None
            leaking.stdin.write(b"\n")
            leaking.stdin.flush()
            leaking.stdout.readline()
            watch.look()
            assert watch.excess is not None
            assert watch.excess.load == FUNCTION
            assert "took more than 94371840 together, 90% of all memory: it leaks" in watch.excess.reason
        leaking.kill()


@pytest.mark.parametrize(("memory", "blamed"), [([10, 80, 95], "large"), ([10, 15, 95], "last"), ([10, 80, 90], None)])
def test_what_has_taken_most_is_at_fault(note: LoadingNote, memory: list[int], blamed: str | None) -> None:
    held = iter(memory)
    watch = LoadWatch(note, lambda: next(held), 100)
    for module in ("small", "large", "last"):
        with note.of(Load(module)):
            watch.look()
    assert (watch.excess and watch.excess.load.module) == blamed


def test_what_has_taken_most_is_known_among_any_number_of_loads(note: LoadingNote) -> None:
    loads = [Load("at_once"), *(Load(f"small{number}") for number in range(300)), *[Load("in_parts")] * 8]
    growth = [5, *[2] * 300, *[1] * 8]
    held = itertools.accumulate(growth)
    watch = LoadWatch(note, lambda: next(held), sum(growth))
    for load in loads:
        with note.of(load):
            watch.look()
    assert watch.excess is not None
    assert watch.excess.load == Load("in_parts")
    assert "it took 8 bytes" in watch.excess.reason
    assert len(watch._grown_bytes) == 100


@pytest.mark.parametrize(("limit_seconds", "limit"), [(600.0, "the limit is 600"), (0.0, "there is no limit")])
def test_an_operator_hears_what_takes_long_now_and_then(note: LoadingNote, limit_seconds: float, limit: str) -> None:
    watch = watch_of(note)
    said = []
    with note.of(Load("shop", "price", "1", limit_seconds)):
        for _ in range(132):
            watch.look()
            said += [watch.patience] if watch.patience else []
    what = "function 'price' of the module 'shop' has been loading for"
    assert said == [f"{what} {seconds} seconds, {limit}" for seconds in (10, 70, 130)]
