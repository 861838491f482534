# SPDX-License-Identifier: Apache-2.0
"""How long a zygote may be at one load, and when an operator hears of it: looks are made by the tests."""

from collections.abc import Iterator

import pytest

from updraft_server.ipc.load import Load
from updraft_server.ipc.loading_note import LoadingNote
from updraft_server.supervisor.zygote_child import LoadWatch


@pytest.fixture
def note() -> Iterator[LoadingNote]:
    made = LoadingNote.made()
    yield made
    made.close()


def looks_until_late(watch: LoadWatch, most: int = 1000) -> int:
    for looks in range(1, most):
        watch.look()
        if watch.is_late:
            return looks
    return most


def test_a_load_is_late_once_whole_seconds_of_its_limit_have_been_seen(note: LoadingNote) -> None:
    watch = LoadWatch(note)
    with note.of(Load("slow", limit_seconds=5.0)):
        assert looks_until_late(watch) == 6
    watch.look()
    assert (watch.load, watch.is_late) == (None, False)


def test_each_load_has_its_own_time(note: LoadingNote) -> None:
    watch = LoadWatch(note)
    for number in range(10):
        with note.of(Load("shop", f"f{number}", "1", 5.0)):
            assert looks_until_late(watch, 5) == 5
    with note.of(Load("shop", "f10", "1", 0.5)):
        assert looks_until_late(watch) == 2


def test_a_load_without_a_limit_is_never_late(note: LoadingNote) -> None:
    with note.of(Load("slow")):
        assert looks_until_late(LoadWatch(note), 2000) == 2000


@pytest.mark.parametrize(("limit_seconds", "limit"), [(600.0, "the limit is 600"), (0.0, "there is no limit")])
def test_an_operator_hears_what_takes_long_now_and_then(note: LoadingNote, limit_seconds: float, limit: str) -> None:
    watch = LoadWatch(note)
    said = []
    with note.of(Load("shop", "price", "1", limit_seconds)):
        for _ in range(132):
            watch.look()
            said += [watch.patience] if watch.patience else []
    what = "function 'price' of the module 'shop' has been loading for"
    assert said == [f"{what} {seconds} seconds, {limit}" for seconds in (10, 70, 130)]
