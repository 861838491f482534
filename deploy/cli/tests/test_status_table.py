# SPDX-License-Identifier: Apache-2.0
"""Cells of the table that `updraft status` prints."""

import contextlib
from collections.abc import Iterator

import pytest

from updraft_cli.commands.status import Status, state_of


class RefusingPool:
    """Service double: a pool that has refused to load newer functions."""

    def status(self) -> dict[str, object]:
        return {
            "state": "ready",
            "reload_fault": "SyntaxError",
            "workers": {"idle": 1, "busy": 0, "starting": 0},
            "queue": {"waiting": 0},
            "versions": {"server": "updraft-server 1.0", "python": "3.11.9", "pyspark": ""},
        }

    def health(self) -> str:
        return "serving"


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


def test_a_refused_reload_is_shown_for_an_endpoint_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextlib.contextmanager
    def service(_: Status) -> Iterator[RefusingPool]:
        yield RefusingPool()

    monkeypatch.setattr(Status, "service", service)
    Status(endpoint="grpc://127.0.0.1:8815").cli_cmd()
    assert "serving  ready, newer functions refused  0 of 1 busy, 0 waiting" in capsys.readouterr().out
