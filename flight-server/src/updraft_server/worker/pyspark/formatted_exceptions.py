# SPDX-License-Identifier: Apache-2.0
"""Recording of exceptions in PySpark before 4.0, whose worker formats them in `main`, not in a separate function.

`install` wraps the functions that format exceptions in the worker, so that each exception is recorded beforehand.
"""

import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

_Record = Callable[[BaseException], None]


def install(worker: ModuleType, record: _Record) -> None:
    """Make PySpark's worker call `record` with each exception that it reports, just before it formats the exception."""
    stock = worker.try_simplify_traceback

    def try_simplify_traceback(_found: Any) -> Any:
        error = _handled()
        record(error)
        # Use the error's traceback, not the argument: `record` may have replaced the traceback.
        return stock(error.__traceback__)

    # mypy does not know these names of the module.
    worker.try_simplify_traceback = try_simplify_traceback  # type: ignore[attr-defined]
    worker.traceback = _Traceback(record)  # type: ignore[attr-defined]


class _Traceback:
    """Replacement for the module `traceback` in PySpark's worker."""

    format_exception = staticmethod(traceback.format_exception)

    def __init__(self, record: _Record) -> None:
        self._record = record

    def format_exc(self) -> str:
        """Record the exception that is being handled, and return it as text."""
        self._record(_handled())
        return traceback.format_exc()


def _handled() -> BaseException:
    error = sys.exception()
    assert error is not None  # PySpark's worker calls these functions in an `except` clause.
    return error
