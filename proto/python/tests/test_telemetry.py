# SPDX-License-Identifier: Apache-2.0
"""Log lines whose values come from strangers: a line stays one line, and only text."""

import json
import unicodedata
from collections.abc import Iterator

import pytest
import structlog

from updraft.telemetry import configure_logging

HOSTILE = 'a\nb\r\x1b[2Jc\x00\x07\x7f\x9b31m\u2028d\u202ee"} {"forged": "line'


@pytest.fixture(autouse=True)
def default_logging() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_value_can_neither_forge_a_line_nor_speak_to_the_terminal(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(log_format=log_format, level="info", process="front")
    with structlog.contextvars.bound_contextvars(tenant=HOSTILE, query=HOSTILE):
        structlog.get_logger().info("worker output", line=HOSTILE)
    (line,) = capsys.readouterr().err.splitlines()
    assert [character for character in line if unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp"}] == []


def test_json_gives_a_value_back_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format="json", level="info", process="front")
    structlog.get_logger().info("worker output", line=HOSTILE)
    assert json.loads(capsys.readouterr().err)["line"] == HOSTILE
