# SPDX-License-Identifier: Apache-2.0
"""Service that all attempts share until one of them harms it; a new service then replaces it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar


class UnderAttack(Protocol):
    """Service that an attempt may harm."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def check_unharmed(self) -> None:
        """Raise AssertionError if the service is harmed."""


Attacked = TypeVar("Attacked", bound=UnderAttack)


class UntilHarmed(Generic[Attacked]):
    """Service that `start` makes in a directory, and that is replaced when harmed. The caller must close it."""

    def __init__(self, start: Callable[[Path], Attacked]) -> None:
        self._start = start
        self._open = contextlib.ExitStack()
        self._service: Attacked | None = None

    @contextlib.contextmanager
    def unharmed(self) -> Iterator[Attacked]:
        """Yield the service, and check at the end of the block that the service is unharmed."""
        service, self._service = self._service, None
        if service is None:
            self._open.close()
            # Use a directory with a path short enough for a Unix socket, unlike pytest's.
            made = tempfile.TemporaryDirectory(prefix="updraft-attacks-", ignore_cleanup_errors=True)
            service = self._start(Path(self._open.enter_context(made)))
            self._open.enter_context(service)
        yield service
        service.check_unharmed()
        self._service = service

    def close(self) -> None:
        """Close the service."""
        self._open.close()
