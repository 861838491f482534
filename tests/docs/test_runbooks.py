# SPDX-License-Identifier: Apache-2.0
"""Runbooks quote lines of logs and errors exactly as the services write them."""

from __future__ import annotations

import ast
import errno
import os
import re
from functools import cache

import pytest

import updraft.errors
from tests.docs.markdown import Page
from tests.support.paths import REPOSITORY
from updraft.service.audit import ENDED, REFUSED
from updraft_writer.sinks.sink import Step

_TEXT = Page(REPOSITORY / "docs/runbooks.md").text
_SOURCES = ("flight-server/src", "gpu-writer/src", "proto/python/src")
_LOGGED = {"debug", "info", "warning", "error", "exception"}
_QUOTED = re.compile(r"`([^`]+)`")
_LINE = re.compile(r"\b[Ll]ines?\s+`([^`]+)`|`([^`]+)`\s+in the\s+log\b")
_SENTENCE = re.compile(r"[A-Za-z/]+(?:[ ,:]+[A-Za-z/]+)+")
_COMMANDS = ("kubectl ", "updraft ")
_ERROR = re.compile(r"`(?:outcome=)?(\w+Error)`")
_AUDITED = {ENDED, REFUSED}
_OF_KUBERNETES = {"Last State", "Liveness probe failed"}
_OF_THE_SYSTEM = {os.strerror(number) for number in (errno.EACCES, errno.EIO, errno.ENOSPC, errno.ESTALE)}
_OF_STORAGES = {f"cannot {step.value}" for step in Step}


@cache
def _logged() -> set[str]:
    """Return every literal event in the services' log calls."""
    files = (file for folder in _SOURCES for file in (REPOSITORY / folder).rglob("*.py"))
    calls = (node for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
    return {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr in _LOGGED and call.args
        if isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)
    }


def _lines(text: str) -> set[str]:
    """Return the log lines that a text quotes."""
    return {quoted for pair in _LINE.findall(text) for quoted in pair if quoted}


def _sentences(text: str) -> set[str]:
    """Return all other quotes that are neither names nor commands."""
    quoted = {" ".join(found.split()) for found in _QUOTED.findall(text)}
    return {found for found in quoted if _SENTENCE.fullmatch(found) and not found.startswith(_COMMANDS)}


def _unsaid(text: str) -> set[str]:
    """Return the quotes in a text that match no message of the services or the systems below them."""
    others = _OF_KUBERNETES | _OF_THE_SYSTEM | _OF_STORAGES
    return (_lines(text) - _logged() - _AUDITED) | (_sentences(text) - _logged() - others)


def test_quoted_lines_are_logged() -> None:
    assert {"a worker did not start", "exchange ended", "the quota is computed", REFUSED} <= _lines(_TEXT)
    assert len(_sentences(_TEXT)) > 8
    assert _unsaid(_TEXT) == set()


def test_named_errors_exist() -> None:
    named = set(_ERROR.findall(_TEXT))
    assert {"PoolFullError", "WorkerError"} <= named
    assert [name for name in named if not hasattr(updraft.errors, name)] == []


@pytest.mark.parametrize(
    "text",
    [
        "The lines `exchange finished` say why.",
        "`workers die` in the log means",
        "Look for `a worker did\nnot begin`.",
        "`cannot store` with `Permission denied`",
    ],
)
def test_a_line_that_nobody_logs_would_be_found(text: str) -> None:
    assert _unsaid(text) != set()
