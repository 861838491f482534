# SPDX-License-Identifier: Apache-2.0
"""A moment of `make fuzz`, what it has found before, and that it finds."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.programs.fuzz import __main__ as fuzz
from tests.programs.fuzz.__main__ import FINDINGS, TARGETS, Finding, read, saved
from tests.programs.fuzz.guided import framed, unframed
from tests.programs.fuzz.target import Pieces, Target
from tests.support.paths import REPOSITORY

_SECONDS_A_TARGET = 1.0


def test_hostile_bytes_are_the_senders_error_and_nothing_else() -> None:
    """In a process of its own: what it looks for may end the process."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.programs.fuzz", "--seconds", str(_SECONDS_A_TARGET)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    counted = re.findall(r"^(.+): ([\d,]+) inputs, the slowest", ended.stdout, re.MULTILINE)
    assert [name for name, _ in counted] == [target.name for target in TARGETS]
    assert all(int(runs.replace(",", "")) > 10 for _, runs in counted), ended.stdout


@pytest.mark.parametrize("finding", sorted(FINDINGS.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_found_before_is_read_well(finding: Path) -> None:
    read(*saved(finding))


def test_there_are_findings_to_read_again() -> None:
    assert list(FINDINGS.glob("*.json"))


def _raises(_: Pieces) -> None:
    raise KeyError("not the sender's")


def _stands_still(_: Pieces) -> None:
    sum(range(5_000_000))


def _grows(_: Pieces) -> None:
    # On Linux its pages are there once they are written.
    bytearray(b"x" * (400 << 20))


@pytest.mark.parametrize(
    ("reader", "said"), [(_raises, "raised KeyError"), (_stands_still, "took .* seconds"), (_grows, "MiB of memory")]
)
def test_a_reader_that_raises_stands_still_or_grows_is_found(
    monkeypatch: pytest.MonkeyPatch, reader: Callable[[Pieces], None], said: str
) -> None:
    # New pages are slow on some machines.
    monkeypatch.setattr(fuzz, "_STALL_SECONDS", 0.01 if reader is _stands_still else 60)
    with pytest.raises(Finding, match=said):
        read(Target("a reader", lambda _: [], reader), [])


def test_growth_below_an_earlier_peak_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "_STALL_SECONDS", 60)
    bytearray(b"x" * (600 << 20))
    with pytest.raises(Finding, match="MiB of memory"):
        read(Target("a reader", lambda _: [], _grows), [])


@pytest.mark.parametrize("pieces", [[b"a"], [b"", b""], [b"ab", b"", b"c" * 70_000]])
def test_the_guided_form_reads_the_inputs_that_it_begins_with(pieces: Pieces) -> None:
    assert unframed(framed(pieces), len(pieces)) == pieces


@pytest.mark.parametrize("data", [b"", b"\xff" * 3, b"\xff\xff\xff\xffab", b"\x01\x00\x00\x00ab"])
def test_any_bytes_are_an_input_of_the_guided_form(data: bytes) -> None:
    assert len(unframed(data, 3)) == 3


def test_the_guided_form_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--guided"])
    monkeypatch.setattr(fuzz, "_say", said.append)
    assert fuzz.main() == 1
    assert "atheris is not installed" in said[-1]
