# SPDX-License-Identifier: Apache-2.0
"""Structured log lines on stderr."""

import atexit
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from updraft.service.log_lines import line_renderer
from updraft.service.log_output import LogDrops, LogOutput, log_stream
from updraft.service.lossy_streams import STDERR, protect_standard_streams

LOG_DROPS = LogDrops()
"""Log lines that this process dropped; stays at zero if `log_to_stderr` was not called."""


def log_to_stderr(*, log_format: str, level: str, process: str) -> None:
    """Log to stderr as JSON lines or for a console; every line names the `process`.

    Neither an unread pipe nor a full disk blocks or fails code that logs (`updraft.service.log_output`) or that writes
    to sys.stderr or descriptor 2. At exit, the process spends at most half a second on writing the remaining lines.
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

    Values bound with `structlog.contextvars` (the task's identity) appear in every line of that exchange.
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
