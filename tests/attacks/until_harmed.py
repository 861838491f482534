# SPDX-License-Identifier: Apache-2.0
"""Service that all attempts share until it is harmed; then a fresh one replaces it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar


class UnderAttack(Protocol):
    """Service while it is open."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def check_unharmed(self) -> None:
        """Raise AssertionError if it is harmed."""


Attacked = TypeVar("Attacked", bound=UnderAttack)


class UntilHarmed(Generic[Attacked]):
    """Service that `start` makes in a directory; must be closed."""

    def __init__(self, start: Callable[[Path], Attacked]) -> None:
        self._start = start
        self._open = contextlib.ExitStack()
        self._service: Attacked | None = None

    @contextlib.contextmanager
    def unharmed(self) -> Iterator[Attacked]:
        """Yield the service, and check at the end of the block that it is unharmed."""
        service, self._service = self._service, None
        if service is None:
            self._open.close()
            # Unlike pytest's, short enough for the path of a Unix socket.
            made = tempfile.TemporaryDirectory(prefix="updraft-attacks-", ignore_cleanup_errors=True)
            service = self._start(Path(self._open.enter_context(made)))
            self._open.enter_context(service)
        yield service
        service.check_unharmed()
        self._service = service

    def close(self) -> None:
        """Close everything that is open."""
        self._open.close()
