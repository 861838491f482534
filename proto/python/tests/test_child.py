# SPDX-License-Identifier: Apache-2.0
"""What a supervisor says of a child that has ended."""

import signal

import pytest

from updraft.service.child import describe_exit


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-signal.SIGSEGV, "was killed by SIGSEGV"),
        # The first and the last real-time signal have names, those between them have none.
        (-signal.SIGRTMIN - 1, f"was killed by signal {signal.SIGRTMIN + 1}"),
    ],
)
def test_an_exit_is_told_in_words(status: int, words: str) -> None:
    assert describe_exit(status) == words
