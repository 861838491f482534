# SPDX-License-Identifier: Apache-2.0
"""One service for all attempts as long as it is unharmed, a fresh one after that."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar


class UnderAttack(Protocol):
    """A service while it is open."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def check_unharmed(self) -> None:
        """Raises AssertionError where it is harmed."""


Attacked = TypeVar("Attacked", bound=UnderAttack)


class UntilHarmed(Generic[Attacked]):
    """The service that `start` makes in a directory; to be closed."""

    def __init__(self, start: Callable[[Path], Attacked]) -> None:
        self._start = start
        self._open = contextlib.ExitStack()
        self._service: Attacked | None = None

    @contextlib.contextmanager
    def unharmed(self) -> Iterator[Attacked]:
        """The service, which has to be unharmed at the end of the block."""
        service, self._service = self._service, None
        if service is None:
            self._open.close()
            # Not pytest's: the path of a Unix socket has to be short.
            made = tempfile.TemporaryDirectory(prefix="updraft-attacks-", ignore_cleanup_errors=True)
            service = self._start(Path(self._open.enter_context(made)))
            self._open.enter_context(service)
        yield service
        service.check_unharmed()
        self._service = service

    def close(self) -> None:
        """End what is open."""
        self._open.close()
