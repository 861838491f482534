# SPDX-License-Identifier: Apache-2.0
"""Records of the store, one for each artifact, file set and owner."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable
from pathlib import Path

from updraft_server.front.artifacts.needs import ArtifactKey
from updraft_server.front.artifacts.originals import Original

DIRECTORY_MODE = 0o750
"""Mode of the store's directories. The group may read them, because workers may run as another user of the group."""


class StoredArtifact:
    """Artifact that is stored, or that an exchange waits for."""

    def __init__(self, key: ArtifactKey) -> None:
        self.key = key
        self.path: Path | None = None
        """Path on disk; None until the artifact is stored."""
        self.original: Original | None = None
        """State of the artifact when it was checked; None until it is stored."""
        self.holders = 0
        self.senders = 0
        """Number of exchanges whose clients are sending the artifact now."""
        self.arrived_bytes = 0
        """Bytes received from all senders together; the number grows as long as any sender makes progress."""
        self.kept_bytes = 0
        """Space that the artifact takes in the store; 0 until it is stored."""
        self.arriving_bytes = 0
        """Space that unfinished copies of the artifact take, from all senders together."""
        self._changed = asyncio.Event()

    def began(self) -> None:
        """Count one more exchange that requests the artifact from its client."""
        self.senders += 1

    def ended(self) -> None:
        """Count one sender less, because its exchange has received the artifact or given up. Notify waiters."""
        self.senders -= 1
        self._changed.set()
        self._changed = asyncio.Event()

    def change(self) -> Awaitable[object]:
        """Return an awaitable that completes at the next call of `ended`."""
        return self._changed.wait()


class FileSet:
    """Directory that shows artifacts as files under the names that a session gives them."""

    def __init__(self, path: Path, keys: frozenset[ArtifactKey], room_bytes: int) -> None:
        self.path = path
        self.keys = keys
        self.room_bytes = room_bytes
        """Space that the links of this set take in the store."""
        self.holders = 0


class OwnedArtifacts:
    """Artifacts, file sets and directory of one owner."""

    def __init__(self, digest: bytes, tenant: bytes, directory: Path) -> None:
        self.digest = digest
        """Digest of the owner."""
        self.tenant = tenant
        """Digest of the tenant whose share the owner uses."""
        self.directory = directory
        """Directory with everything that workers of this owner need to read, and nothing of other owners."""
        self.artifacts: dict[ArtifactKey, StoredArtifact] = {}
        self.idle: OrderedDict[ArtifactKey, StoredArtifact] = OrderedDict()
        """Artifacts that no exchange holds, the least recently used first."""
        self.file_sets: dict[str, FileSet] = {}
        self.idle_sets: OrderedDict[str, FileSet] = OrderedDict()
        """File sets that no exchange holds, the least recently used first."""
        self.used_bytes = 0
        self.exchanges = 0
        """Number of exchanges that hold artifacts of this owner."""
        self.lasting = True
        """Whether artifacts stay in the store when no exchange holds them."""
        for path in (directory, self.stored_path, self.sets_path):
            path.mkdir(mode=DIRECTORY_MODE)

    @property
    def may_give_way(self) -> bool:
        """Whether the store can evict anything here: artifacts or file sets that no exchange holds."""
        return bool(self.idle or self.idle_sets)

    @property
    def stored_path(self) -> Path:
        """Directory of the artifacts."""
        return self.directory / "stored"

    @property
    def sets_path(self) -> Path:
        """Directory of the file sets."""
        return self.directory / "sets"
