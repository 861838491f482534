# SPDX-License-Identifier: Apache-2.0
"""Simulated token file, which the real `BearerTokens` of each pod watches. Tokens change, and the file can vanish."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from tests.simulation.world import World
from tests.support.invariants import Invariants


class TokenFile:
    """Token file of all pods, as Kubernetes mounts a Secret. It replaces a `Path`."""

    def __init__(self, world: World, invariants: Invariants) -> None:
        self.token = "token-1"
        """The only valid token, which executors read from their own copies of the file."""
        self._world = world
        self._invariants = invariants
        self._versions = 1
        self._is_missing = False

    def rotate(self) -> None:
        """Replace the token by a new token."""
        self._invariants.revoked(self.token, self._world.now)
        self._versions += 1
        self.token = f"token-{self._versions}"
        self._world.note("rotated to", self.token)

    def vanish(self, seconds: float) -> None:
        """Remove the file for this long, which revokes the token."""
        if not self._is_missing:
            self._world.note("no token file")
            self._is_missing = True
            self._invariants.revoked(self.token, self._world.now)
            self._world.later(seconds, self._come_back)

    def _come_back(self) -> None:
        self._world.note("token file")
        self._is_missing = False
        self._invariants.granted(self.token)

    def stat(self) -> Any:
        """Do what `Path.stat` does."""
        self._check()
        return SimpleNamespace(st_mtime_ns=self._versions, st_ctime_ns=self._versions, st_ino=1, st_size=1)

    def read(self) -> bytes:
        """Return the content, or raise OSError."""
        self._check()
        return self.token.encode()

    def _check(self) -> None:
        if self._is_missing:
            raise FileNotFoundError(2, os.strerror(2), str(self))

    def __str__(self) -> str:
        return "tokens"
