# SPDX-License-Identifier: Apache-2.0
"""Cells of the table that `updraft status` prints."""

import pytest

from updraft_cli.commands.status import state_of


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({"state": "ready", "reload_fault": ""}, "ready"),
        ({"state": "ready", "reload_fault": "SyntaxError"}, "ready, newer functions refused"),
        # Older pools and writers do not report it.
        ({"state": "draining"}, "draining"),
    ],
)
def test_the_state_says_whether_a_reload_was_refused(status: dict[str, str], shown: str) -> None:
    assert state_of(status) == shown
