# SPDX-License-Identifier: Apache-2.0
"""One artifact on its way into the store: written, checked, unpacked; kept as a whole or not at all.

What blocks on the disk runs in threads, and archives are unpacked by another process.
"""

import hashlib
import shutil
from pathlib import Path
from typing import Self

from updraft.errors import ProtocolError
from updraft_server.front.artifacts.needs import ArtifactKey, Form
from updraft_server.front.artifacts.threads import in_thread
from updraft_server.front.artifacts.unpackers import Unpackers

_READ_ONLY = 0o444


class Arrival:
    """The bytes of an artifact, in order; a context manager that removes what was not kept."""

    def __init__(self, key: ArtifactKey, path: Path) -> None:
        self._key = key
        self._path = path
        self._directory = path.with_suffix(".unpacked")
        self._file = path.open("wb")
        self._digest = hashlib.sha256()
        self._received_bytes = 0
        self._kept = False

    @property
    def complete(self) -> bool:
        """Whether all bytes are there."""
        return self._received_bytes == self._key.size_bytes

    async def add(self, offset: int, data: memoryview) -> None:
        """Take the next bytes; raises ProtocolError for a gap, a repeat, or more than was announced."""
        if offset != self._received_bytes:
            raise ProtocolError(f"{self._name} continues at byte {offset}, expected {self._received_bytes}")
        if offset + len(data) > self._key.size_bytes:
            raise ProtocolError(f"{self._name} has more than the {self._key.size_bytes} bytes that were announced")
        await in_thread(self._add, data)
        self._received_bytes += len(data)

    def _add(self, data: memoryview) -> None:
        self._file.write(data)
        self._digest.update(data)

    async def check(self, unpackers: Unpackers) -> None:
        """Raises ProtocolError when the complete bytes are not what was announced, or no archive where one was."""
        await in_thread(self._file.close)
        if self._digest.digest() != self._key.sha256:
            raise ProtocolError(f"{self._name} arrived with the digest {self._digest.hexdigest()}")
        self._path.chmod(_READ_ONLY)
        if self._key.form is Form.DIRECTORY:
            await unpackers.unpack(self._name, self._path, self._directory)
            await in_thread(self._path.unlink)

    def keep(self) -> Path:
        """Where the checked artifact lies from now on."""
        self._kept = True
        return self._directory if self._key.form is Form.DIRECTORY else self._path

    @property
    def _name(self) -> str:
        return f"artifact {self._key.sha256.hex()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if not self._kept:
            self._path.unlink(missing_ok=True)
            shutil.rmtree(self._directory, ignore_errors=True)
