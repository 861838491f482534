# SPDX-License-Identifier: Apache-2.0
"""Artifact that is being received: written, checked, unpacked and measured, then kept as a whole or removed.

Blocking disk operations run in threads, and a separate process unpacks archives.
"""

import hashlib
from pathlib import Path
from typing import Self

from updraft.errors import ProtocolError
from updraft_server.front.artifacts.needs import ArtifactKey, Form
from updraft_server.front.artifacts.originals import Original, original
from updraft_server.front.artifacts.threads import in_thread, remove
from updraft_server.front.artifacts.unpackers import TreeRoom, Unpackers

_READ_ONLY = 0o444


class Arrival:
    """Bytes of an artifact, received in order.

    This asynchronous context manager removes the artifact on exit, unless `keep` was called.
    """

    def __init__(self, key: ArtifactKey, path: Path) -> None:
        self._key = key
        self._path = path
        self._directory = path.with_suffix(".unpacked")
        self._leftovers = [self._path, self._directory]
        self._file = path.open("wb")
        self._digest = hashlib.sha256()
        self._received_bytes = 0

    @property
    def complete(self) -> bool:
        """Whether all bytes have arrived."""
        return self._received_bytes == self._key.size_bytes

    def check_next(self, offset: int, size_bytes: int) -> None:
        """Raise ProtocolError if the next bytes leave a gap, overlap earlier ones or exceed the announced size."""
        if offset != self._received_bytes:
            raise ProtocolError(f"{self._name} continues at byte {offset}, expected {self._received_bytes}")
        if offset + size_bytes > self._key.size_bytes:
            raise ProtocolError(f"{self._name} has more than the {self._key.size_bytes} bytes that were announced")

    async def add(self, offset: int, data: memoryview) -> None:
        """Append the next bytes; raise what `check_next` raises."""
        self.check_next(offset, len(data))
        await in_thread(self._add, data)
        self._received_bytes += len(data)

    def _add(self, data: memoryview) -> None:
        self._file.write(data)
        self._digest.update(data)

    async def check(self, unpackers: Unpackers, room: TreeRoom) -> None:
        """Check the digest of the complete bytes, and unpack them if they are an archive.

        Raises ProtocolError if the digest differs from the announced digest. Also raises what `Unpackers.unpack` and
        `room` raise.
        """
        await in_thread(self._file.close)
        if self._digest.digest() != self._key.sha256:
            raise ProtocolError(f"{self._name} arrived with the digest {self._digest.hexdigest()}")
        self._path.chmod(_READ_ONLY)
        if self._key.form is Form.DIRECTORY:
            await unpackers.unpack(self._name, self._path, self._directory, room)
            await in_thread(remove, self._path)
            room.settle(await in_thread(room.measure, self._directory))

    async def move(self, path: Path) -> Original:
        """Move the checked artifact to `path` and return its state there."""
        self._leftovers.append(path)
        return await in_thread(self._move, path)

    def _move(self, path: Path) -> Original:
        (self._directory if self._key.form is Form.DIRECTORY else self._path).rename(path)
        return original(self._key, path)

    def keep(self) -> None:
        """Keep the artifact when the context exits."""
        self._leftovers.clear()

    @property
    def _name(self) -> str:
        return f"artifact {self._key.sha256.hex()}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await in_thread(self._clean_up)

    def _clean_up(self) -> None:
        self._file.close()
        remove(*self._leftovers)
