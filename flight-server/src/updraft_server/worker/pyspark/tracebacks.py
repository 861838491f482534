# SPDX-License-Identifier: Apache-2.0
"""Capture of the exception that PySpark's worker reports, with this package's frames removed from its traceback.

PySpark formats the traceback itself, so that its settings to hide or simplify it apply. The package's own frames are
removed first, as if PySpark's serializers had been running, because a "simplified" traceback stops at the first frame
outside PySpark.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from updraft_server.worker.explanations import explain

_OWN_FILES = str(Path(__file__).parent.parent)


class ReportedException:
    """Last exception that PySpark's worker reported in this process."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def wrap(self, report: Callable[..., None]) -> Callable[..., None]:
        """Return a `handle_worker_exception` that also remembers the exception."""

        @functools.wraps(report)
        def handle_worker_exception(error: BaseException, *arguments: Any, **options: Any) -> None:
            self.error = error
            _strip_chain(error)
            explain(error)
            report(error, *arguments, **options)

        return handle_worker_exception


def _strip_chain(error: BaseException) -> None:
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = strip_own_frames(current.__traceback__)
        pending += [current.__cause__, current.__context__]


def strip_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of this package."""
    kept: list[TracebackType] = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(_OWN_FILES):
            kept.append(traceback)
        traceback = traceback.tb_next
    for link, following in zip(kept, [*kept[1:], None], strict=True):
        link.tb_next = following
    return kept[0] if kept else None
