# SPDX-License-Identifier: Apache-2.0
"""Formatting of log lines, as JSON or for a console: one line of bounded length each, whatever text clients send."""

from collections.abc import Callable, Iterator
from typing import Any

import structlog
from structlog.processors import ExceptionRenderer
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict

from updraft.service.log_output import MAX_LINE_BYTES

# Control characters of ASCII and Latin-1, and Unicode's other line separators and direction marks.
_CONTROL_CHARACTERS = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: repr(chr(code))[1:-1] for code in _CONTROL_CHARACTERS}

# Limits tried in turn until the line fits: the first keeps it readable, the last makes any line fit.
_VALUE_CHARACTERS = (8192, 1024, 64)
_IDENTITY_CHARACTERS = 200
_TRACEBACK_FRAMES = 30


def line_renderer(log_format: str, *, colors: bool) -> Callable[[EventDict], str]:
    """Return the processor that renders an event. A JSON line has at most MAX_LINE_BYTES and stays JSON when cut."""
    if log_format == "console":
        console = structlog.dev.ConsoleRenderer(colors=colors)
        return lambda event: str(console(None, "", _without_control_characters(_cut(event, _VALUE_CHARACTERS[0]))))
    json = structlog.processors.JSONRenderer()
    # Leave out the values of local variables, which are long and may be secrets.
    tracebacks = ExceptionRenderer(ExceptionDictTransformer(show_locals=False, max_frames=_TRACEBACK_FRAMES))

    def render(event: EventDict) -> str:
        event = tracebacks(None, "", event)
        for line in (json(None, "", cut) for cut in _ever_shorter(event)):
            if len(line) < MAX_LINE_BYTES:
                break
        return str(line)

    return render


def shortened(text: str, characters: int = _IDENTITY_CHARACTERS) -> str:
    """Cut a text that may be of any length, so that it can be kept and repeated in every log line."""
    return text if len(text) <= characters else text[: characters - 3] + "..."


def _ever_shorter(event: EventDict) -> Iterator[EventDict]:
    first, *others = _VALUE_CHARACTERS
    yield _cut(event, first)
    for characters in others:
        yield _cut({key: _as_text(value) for key, value in event.items()}, characters)


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, list | tuple | dict) else value


def _cut(event: EventDict, characters: int) -> EventDict:
    return {key: _cut_text(value, characters) if isinstance(value, str) else value for key, value in event.items()}


def _cut_text(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}... [cut from {len(text)} characters]"


def _without_control_characters(event: EventDict) -> EventDict:
    """Escape control characters, so that text of a client or function cannot start a new line or control a terminal.

    JSON escapes such characters itself.
    """
    return {key: value.translate(_ESCAPES) if isinstance(value, str) else value for key, value in event.items()}
