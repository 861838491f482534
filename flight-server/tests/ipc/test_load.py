# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Iterator

import pytest

from updraft_server.ipc.load import MOST_BYTES, Load, LoadingNote

LOAD = Load("shop", "price", "1", 5.0)


@pytest.fixture
def note() -> Iterator[LoadingNote]:
    made = LoadingNote.made()
    yield made
    made.close()


def test_what_runs_is_noted_for_as_long_as_it_runs(note: LoadingNote) -> None:
    assert note.read() is None
    with note.of(Load("a_module_with_a_long_name", limit_seconds=600.0)):
        assert note.read() == Load("a_module_with_a_long_name")
    with note.of(LOAD):
        read = note.read()
        assert read == LOAD
        assert read.limit_seconds == 5.0
    assert note.read() is None


def test_the_note_of_a_process_that_has_ended_stays(note: LoadingNote) -> None:
    child = os.fork()
    if child == 0:
        with note.of(LOAD):
            os._exit(3)
    os.waitpid(child, 0)
    assert note.read() == LOAD


def test_a_finished_load_leaves_its_faults(note: LoadingNote) -> None:
    assert note.read_faults() == {}
    note.finish({"shop": "SyntaxError", "price@1": "\udcff" * 10_000} | {f"f{i}@1": "bad" for i in range(1_000)})
    faults = note.read_faults()
    assert faults["shop"] == "SyntaxError"
    assert faults["price@1"] == "\udcff" * 400
    assert len(faults) == 100
    assert note.read() is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"faults": 1}', b"[" * 50_000, LOAD.encode()], ids=range(6))
def test_what_cannot_be_read_has_no_faults(note: LoadingNote, data: bytes) -> None:
    os.pwrite(note.descriptor, data, 0)
    assert note.read_faults() == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"module": "shop"}',
        b"\xff\xff",
        b'{"module": 1}',
        b"[" * 50_000,
        Load("m" * MOST_BYTES).encode(),
        b'{"module": "m", "function": "", "version": "", "limit_seconds": 1%s}' % (b"0" * 400),
    ],
    ids=range(10),
)
def test_what_cannot_be_read_is_no_load(note: LoadingNote, data: bytes) -> None:
    os.pwrite(note.descriptor, data, 0)
    assert note.read() is None


def test_nobody_parses_more_than_a_load_may_have() -> None:
    longest = Load("m" * (MOST_BYTES - len(Load("").encode())))
    assert Load.decode(longest.encode()) == longest
    with pytest.raises(ValueError, match=f"a load of {MOST_BYTES + 1} bytes, the limit is {MOST_BYTES}"):
        Load.decode(longest.encode() + b" ")
