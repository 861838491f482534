# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a command whatever it is doing."""

import signal
import sys
from collections.abc import Iterator

import pytest

from updraft_cli.commands.serve import Interruption


@pytest.fixture
def interruption() -> Iterator[Interruption]:
    # Ignore SIGINT, as a shell does for the background commands of a script.
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    yield Interruption()
    for number, handler in before.items():
        signal.signal(number, handler)


class _Finalized:
    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        signal.raise_signal(self._number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_whatever_runs(interruption: Interruption, number: signal.Signals) -> None:
    interruption.sleep(0)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_that_comes_to_a_finalizer_ends_the_next_wait(
    interruption: Interruption, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: lost.append(unraisable.exc_type))
    _Finalized(number)
    assert lost == [KeyboardInterrupt]
    with pytest.raises(KeyboardInterrupt):
        interruption.sleep(60)
