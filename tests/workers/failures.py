# SPDX-License-Identifier: Apache-2.0
"""Errors of jobs as outcomes, without the numbers and addresses that differ between runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

_VARYING = (
    # Spark's own workers import PySpark from an archive.
    (re.compile(r'File "[^"]*/pyspark/(python/lib/pyspark\.zip/pyspark/)?'), 'File "pyspark/'),
    # The pool adds its address to the error for a missing module.
    (re.compile(r"\nIt ran on the Updraft pool at .*?(?= SQLSTATE|\n|$)"), ""),
    (re.compile(r"\b0x[0-9a-f]+\b"), "0x"),
    (re.compile(r"Task\(\d+"), "Task(N"),
    (re.compile(r"\b(stage|[Tt]ask|TID|executor|job|[Jj]ob group) [0-9][0-9.]*"), r"\1 N"),
    (re.compile(r"\(([^()]*) executor [^()]*\)"), "(executor)"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
)
_MOST_CAUSES = 20


def failure(action: Callable[[], Any]) -> dict[str, Any]:
    """Run the action and return its error; raise an AssertionError if it does not fail.

    The returned error contains the class, the first line, and the innermost cause in the JVM with its Python traceback.
    """
    try:
        value = action()
    except (PySparkException, Py4JJavaError) as error:
        return _described(error)
    raise AssertionError(f"this did not fail, but returned {value!r}")


def _described(error: Exception) -> dict[str, Any]:
    described: dict[str, Any] = {"class": type(error).__name__, "message": _first_line(str(error))}
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if thrown is not None:
        causes = _causes(thrown)
        described["message"] = _first_line(str(causes[0].getMessage()))
        described["causes"] = [cause.getClass().getName() for cause in causes]
        described["cause"] = steady(str(causes[-1].getMessage())).splitlines()
    return described


def _causes(thrown: Any) -> list[Any]:
    causes = [thrown]
    while (cause := causes[-1].getCause()) is not None and len(causes) < _MOST_CAUSES:
        causes.append(cause)
    return causes


def _first_line(text: str) -> str:
    return next((line for line in steady(text).splitlines() if line.strip()), "")


def steady(text: str) -> str:
    """Return the text without the parts that differ between runs."""
    for pattern, replacement in _VARYING:
        text = pattern.sub(replacement, text)
    return text
