# SPDX-License-Identifier: Apache-2.0
"""Pools and writers that keep their address across restarts."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.support.pool import LocalPool
from tests.support.writer import LocalWriter

Service = LocalPool | LocalWriter


class Place:
    """Fixed address of several equal services: a link to the Unix socket of one of them."""

    def __init__(self, link: Path, make: Callable[[], Service], count: int) -> None:
        self._link = link
        self.services = [make() for _ in range(count)]
        """Equal services; clients connect to the first service."""
        self.restarts = self.reloads = 0

    @property
    def endpoint(self) -> str:
        """Endpoint, for Spark's settings."""
        return f"grpc+unix://{self._link}"

    def start(self) -> None:
        """Start all services."""
        for service in self.services:
            service.start()
        self._point_at(self.services[0])

    def stop(self) -> None:
        """Stop all services."""
        for service in self.services:
            with contextlib.suppress(psutil.Error):
                service.stop()

    def first(self) -> Service:
        """Return the service to which clients connect."""
        return self.services[0]

    def members(self) -> list[psutil.Process]:
        """Return the processes of all services."""
        return [member for service in self.services for member in service.members()]

    def start_what_has_ended(self) -> None:
        """Restart services that have ended, as a platform does."""
        for service in self.services:
            if not _lives(service.pid):
                self._start_again(service)

    def restart_in_turn(self) -> None:
        """Send clients to the next service, then drain the previous one and restart it."""
        before = self.services[0]
        self.services.append(self.services.pop(0))
        self._point_at(self.services[0])
        before.terminate()
        self._start_again(before)

    def reload(self) -> None:
        """Make all pools reload their functions."""
        for service in self.services:
            if isinstance(service, LocalPool) and service.is_ready:
                service.load_again()
                self.reloads += 1

    def _start_again(self, service: Service) -> None:
        # Reap the process if it has already ended, and end its descendants.
        service.terminate()
        service.start_again()
        self.restarts += 1

    def _point_at(self, service: Service) -> None:
        fresh = self._link.with_suffix(".next")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(service.unix_socket)
        fresh.replace(self._link)


class Platform:
    """Context manager with a thread that calls `turn` periodically. It records errors of `turn` and continues."""

    def __init__(self, turn: Callable[[], None], every_seconds: float) -> None:
        self._turn = turn
        self._every_seconds = every_seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.troubles: list[str] = []

    def _run(self) -> None:
        while not self._done.wait(self._every_seconds):
            try:
                self._turn()
            except Exception as error:
                self.troubles.append(f"{time.strftime('%H:%M:%S')} {type(error).__name__}: {error}"[:300])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
