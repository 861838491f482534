# SPDX-License-Identifier: Apache-2.0
"""Token files of a service and of its clients, and their rotation."""

from __future__ import annotations

from pathlib import Path


class TokenFiles:
    """Service's file of tokens and a client's file with one of them."""

    def __init__(self, directory: Path) -> None:
        self.service = directory / "tokens"
        self.client = directory / "token"
        self._rotations = 0
        self._write(self.service, self._token)
        self._write(self.client, self._token)

    @property
    def _token(self) -> str:
        return f"token-{self._rotations}\n"

    def rotate(self) -> None:
        """Rotate as in the guide: the service accepts both, the client takes the new one, the service drops the old."""
        old = self._token
        self._rotations += 1
        self._write(self.service, old + self._token)
        self._write(self.client, self._token)
        self._write(self.service, self._token)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """Replace the file atomically, as a Secret's volume does."""
        beside = path.with_suffix(".new")
        beside.write_text(text)
        beside.replace(path)
