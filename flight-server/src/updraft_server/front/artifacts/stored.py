# SPDX-License-Identifier: Apache-2.0
"""One artifact of one owner, and all that an owner has in the store: its artifacts, its sets of files, a directory."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable
from pathlib import Path

from updraft_server.front.artifacts.needs import ArtifactKey
from updraft_server.front.artifacts.originals import Original

DIRECTORY_MODE = 0o750
"""Of the store's directories: the workers' side may be another user of the same group."""


class StoredArtifact:
    """An artifact that is there, or that an exchange waits for."""

    def __init__(self, key: ArtifactKey) -> None:
        self.key = key
        self.path: Path | None = None
        """None until it is there."""
        self.original: Original | None = None
        """What it was when it was checked."""
        self.holders = 0
        self.senders = 0
        """Exchanges whose clients are sending it now."""
        self.arrived_bytes = 0
        """Of all senders together: it grows as long as one of them really sends."""
        self.kept_bytes = 0
        """Room that it takes in the store; 0 until it is there."""
        self.arriving_bytes = 0
        """Room that what has arrived of it takes, of all senders together."""
        self._changed = asyncio.Event()

    def began(self) -> None:
        """An exchange has asked its client for it."""
        self.senders += 1

    def ended(self) -> None:
        """That exchange has got it, or has given up."""
        self.senders -= 1
        self._changed.set()
        self._changed = asyncio.Event()

    def change(self) -> Awaitable[object]:
        """Comes when a sender ends, from now on."""
        return self._changed.wait()


class FileSet:
    """A directory that shows artifacts as files under the names that a session gives them."""

    def __init__(self, path: Path, keys: frozenset[ArtifactKey], room_bytes: int) -> None:
        self.path = path
        self.keys = keys
        self.room_bytes = room_bytes
        """Room that its links take in the store."""
        self.holders = 0


class Belongings:
    """What one owner has in the store."""

    def __init__(self, digest: bytes, tenant: bytes, directory: Path) -> None:
        self.digest = digest
        """Of the owner."""
        self.tenant = tenant
        """Whose share it takes: a digest too."""
        self.directory = directory
        """All that workers of this owner need to read, and nothing of anybody else's."""
        self.artifacts: dict[ArtifactKey, StoredArtifact] = {}
        self.idle: OrderedDict[ArtifactKey, StoredArtifact] = OrderedDict()
        """Return the entries that no exchange holds, the least recently used first."""
        self.file_sets: dict[str, FileSet] = {}
        self.idle_sets: OrderedDict[str, FileSet] = OrderedDict()
        """Sets of links that no exchange holds, the least recently used first."""
        self.used_bytes = 0
        self.exchanges = 0
        """That are under way with artifacts of this owner."""
        self.lasting = True
        """Whether artifacts stay when no exchange needs them."""
        for path in (directory, self.stored_path, self.sets_path):
            path.mkdir(mode=DIRECTORY_MODE)

    @property
    def may_give_way(self) -> bool:
        """Whether it has anything that no exchange holds."""
        return bool(self.idle or self.idle_sets)

    @property
    def stored_path(self) -> Path:
        """Where the artifacts lie."""
        return self.directory / "stored"

    @property
    def sets_path(self) -> Path:
        """Where sets of files are laid out."""
        return self.directory / "sets"
