# SPDX-License-Identifier: Apache-2.0
"""Structured log lines on stderr, as JSON or for a console, of bounded length whatever text clients send."""

import atexit
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import structlog
from structlog.processors import ExceptionRenderer
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict

from updraft.service.log_output import MAX_LINE_BYTES, LogDrops, LogOutput, log_stream
from updraft.service.lossy_streams import STDERR, protect_standard_streams

LOG_DROPS = LogDrops()
"""Log lines that this process dropped; all counts stay at zero if `log_to_stderr` was not called."""

# Control characters of ASCII and Latin-1, and Unicode's other line separators and direction marks.
_CONTROL_CHARACTERS = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: repr(chr(code))[1:-1] for code in _CONTROL_CHARACTERS}

# Limits tried in turn until the line fits. The first limit keeps the line readable; with the last limit, any line fits.
_VALUE_CHARACTERS = (8192, 1024, 64)
_IDENTITY_CHARACTERS = 200
_TRACEBACK_FRAMES = 30


def log_to_stderr(*, log_format: str, level: str, process: str) -> None:
    """Log to stderr as JSON lines or for a console; every line names the `process`.

    Code that logs (`updraft.service.log_output`), or that writes to sys.stderr or descriptor 2, never blocks or fails
    because of an unread pipe or a full disk. At exit, the process spends at most half a second on writing the remaining
    lines.
    """
    is_terminal = sys.stderr.isatty()
    protect_standard_streams()
    render = line_renderer(log_format, colors=is_terminal)

    def gap_line(lines: int) -> bytes:
        event = {"event": "log lines were dropped", "lines": lines, "level": "warning", "process": process}
        return render({**event, "timestamp": datetime.now(UTC).isoformat()}).encode() + b"\n"

    output = LogOutput(STDERR, LOG_DROPS, gap_line)
    sys.stderr = log_stream(output)
    atexit.register(output.close)
    configure_logging(output.write, log_format=log_format, level=level, process=process, colors=is_terminal)


def configure_logging(
    write: Callable[[bytes], None], *, log_format: str, level: str, process: str, colors: bool = False
) -> None:
    """Log to `write`, one line at a time; every line names the `process`.

    Values bound with `structlog.contextvars` (the task's identity) appear in every line of the task's exchange.
    """
    render = line_renderer(log_format, colors=colors)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            lambda _logger, _method, event: render(event),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _LineLogger(write),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)


class _LineLogger:
    """Logger to which structlog passes rendered lines, in a method named after the level."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write

    def info(self, line: str) -> None:
        self._write(line.encode("utf-8", "backslashreplace") + b"\n")

    debug = warning = error = critical = info


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
    """Cut a text of any length, so that the result can be kept and repeated in every log line."""
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
