# SPDX-License-Identifier: Apache-2.0
"""Log lines with values from untrusted callers: a line stays one line, and only text."""

import json
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from updraft.service.log_output import MAX_LINE_BYTES
from updraft.service.telemetry import configure_logging

HOSTILE = 'a\nb\r\x1b[2Jc\x00\x07\x7f\x9b31m\u2028d\u202ee"} {"forged": "line'


@pytest.fixture(autouse=True)
def default_logging() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_value_can_neither_forge_a_line_nor_speak_to_the_terminal(log_format: str) -> None:
    lines: list[bytes] = []
    configure_logging(lines.append, log_format=log_format, level="info", process="front")
    with structlog.contextvars.bound_contextvars(tenant=HOSTILE, query=HOSTILE):
        structlog.get_logger().info("worker output", line=HOSTILE)
    (line,) = lines[0].decode().splitlines()
    assert [character for character in line if unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp"}] == []


def test_json_gives_a_value_back_as_it_was() -> None:
    assert json_of(line=HOSTILE)["line"] == HOSTILE


@pytest.mark.parametrize("value", ["x" * 100_000, "\x00" * 100_000, "\U0001f680" * 100_000, ["y"] * 100_000])
def test_a_line_that_is_too_long_is_cut_to_its_bound_says_so_and_is_still_json(value: object) -> None:
    event = json_of(line=value, **{f"other_{number}": value for number in range(10)})
    assert event["event"] == "worker output"
    assert event["line"].endswith("characters]")


def test_a_traceback_is_logged_without_the_values_of_variables() -> None:
    def fails(token: str) -> None:
        raise ValueError("of a function")

    lines: list[bytes] = []
    configure_logging(lines.append, log_format="json", level="info", process="front")
    try:
        fails("secret of a caller")
    except ValueError:
        structlog.get_logger().exception("unexpected")
    (exception,) = json.loads(lines[0])["exception"]
    assert (exception["exc_type"], exception["exc_value"]) == ("ValueError", "of a function")
    assert [frame["name"] for frame in exception["frames"]][-1] == "fails"
    assert b"secret of a caller" not in lines[0]


def json_of(**values: object) -> dict[str, Any]:
    """Return an event as it is logged."""
    lines: list[bytes] = []
    configure_logging(lines.append, log_format="json", level="info", process="front")
    structlog.get_logger().info("worker output", **values)
    (line,) = lines
    assert len(line) <= MAX_LINE_BYTES
    return dict(json.loads(line))
