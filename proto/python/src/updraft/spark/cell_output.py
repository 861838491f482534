# SPDX-License-Identifier: Apache-2.0
"""Output of functions in a notebook cell, read from the pool's log and shown below the cell."""

import ast
import contextlib
import json
import re
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

_LOOK_SECONDS = 0.2
_EVENT = "worker output"
_DROPPED = "worker output was dropped: print less, or raise --output-lines-per-second"
_CONSOLE_LINE = re.compile(rf"\S+ \[\w+ *\] (?P<event>{_EVENT}|{_DROPPED}) +(?P<fields>\w+=.*)")
# Values with blanks, quotes or line breaks are written as Python literals.
_FIELD = re.compile(r"""(\w+)=('(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\S*)""")
# A crash prints its frames in another format than a traceback. Only the user's own frames are shown.
_OURS = r".*/(?:updraft_server/.*|updraft/functions/.*|pyspark/(?:worker|util|serializers)\.py)|<frozen .*>"
_FRAME_OF_OURS = re.compile(rf"""  File "(?:{_OURS})", line \d+ in |Extension modules: """)


class CellOutput:
    """Follower of a pool's log, from `begin` to `end` of a cell."""

    def __init__(self, log_file: Path, write: Callable[[str], object] | None = None) -> None:
        self._log_file = log_file
        self._write = write
        self._position = 0
        self._lines_left = self._hidden = 0
        self._rest = b""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, most_lines: int) -> None:
        """Show lines that are printed from now on, at most `most_lines`."""
        if self._thread is not None:
            return
        self._lines_left, self._hidden, self._rest = most_lines, 0, b""
        with contextlib.suppress(FileNotFoundError):
            self._position = self._log_file.stat().st_size
        self._ended.clear()
        self._thread = threading.Thread(target=self._follow, name="updraft-output", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Show the remaining lines. A function's output is in the log before its call ends."""
        if self._thread is None:
            return
        self._ended.set()
        self._thread.join()
        self._thread = None
        self._show_new()
        if self._hidden:
            self._show(f"[{self._hidden} more lines: pool.log(None) has all]\n")

    def _follow(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self._show_new()

    def _show_new(self) -> None:
        try:
            with self._log_file.open("rb") as log:
                log.seek(self._position)
                added = log.read()
        except FileNotFoundError:
            return
        self._position += len(added)
        *lines, self._rest = (self._rest + added).split(b"\n")
        for line in lines:
            if (printed := printed_line(line.decode(errors="replace"))) is None:
                continue
            if self._lines_left and not _FRAME_OF_OURS.match(printed.partition("] ")[2]):
                self._lines_left -= 1
                self._show(f"{printed}\n")
            else:
                self._hidden += 1

    def _show(self, text: str) -> None:
        (self._write or sys.stdout.write)(text)


def printed_line(log_line: str) -> str | None:
    """Return the function's output in a line of the log, marked with its task; None if the line has no such output."""
    fields = _fields_of(log_line)
    if fields is None:
        return None
    if "line" in fields:
        return f"[{_task_of(fields)}] {fields['line']}"
    return f"[{_task_of(fields)}] {fields.get('lines', '?')} lines were dropped: raise output_lines_per_second"


def _fields_of(log_line: str) -> Mapping[str, object] | None:
    if log_line.startswith("{"):
        with contextlib.suppress(ValueError):
            fields: dict[str, object] = json.loads(log_line)
            return fields if fields.get("event") in (_EVENT, _DROPPED) else None
        return None
    matched = _CONSOLE_LINE.fullmatch(log_line)
    return None if matched is None else {name: _value(text) for name, text in _FIELD.findall(matched["fields"])}


def _task_of(fields: Mapping[str, object]) -> str:
    if "stage" in fields:
        return f"stage {fields['stage']}, partition {fields.get('partition', '?')}"
    return str(fields.get("function") or fields.get("worker", ""))


def _value(text: str) -> str:
    """Return a value from a log line. The log writes values with blanks or quotes as Python literals."""
    if text[:1] in ("'", '"'):
        with contextlib.suppress(ValueError, SyntaxError):
            return str(ast.literal_eval(text))
    return text
