# SPDX-License-Identifier: Apache-2.0
"""Disk space of one arriving artifact, reserved before the disk is used and corrected at the end by a measurement.

An archive reserves space as its bytes arrive, and then more space for its unpacked tree. After the archive is removed,
only the tree's space stays reserved. A volume can run out of inodes before it runs out of blocks. Therefore each entry
(a file, directory or link) counts as at least the volume's bytes per inode: a store that may use a tenth of the bytes
uses at most a tenth of the inodes.
"""

import os
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from updraft_server.front.artifacts.originals import Original
from updraft_server.front.artifacts.stored import OwnedArtifacts, StoredArtifact
from updraft_server.linux.hostile_trees import TreeSize, tree_size

# Minimum size that an entry counts as. Some file systems create inodes on demand and report no number of inodes, or one
# so large that each inode would count as nearly nothing.
_LEAST_ENTRY_BYTES = 4096
# Minimum size that an artifact counts as, because even a small artifact uses memory of the front.
_LEAST_ARTIFACT_BYTES = 64 * 1024
# Number of links per directory that count as using no space. The store limits the number of such directories instead.
_FREE_LINKS = 64


class Volume(NamedTuple):
    """Units in which a file system allocates space."""

    block_bytes: int
    entry_bytes: int
    """Bytes of the volume divided by the number of its inodes, but at least 4096 and at least a block."""

    @classmethod
    def of(cls, path: Path) -> Self:
        """Return the units of the volume that holds this directory."""
        found = os.statvfs(path)
        total_bytes = found.f_blocks * found.f_frsize
        entry_bytes = total_bytes // found.f_files if found.f_files else 0
        return cls(found.f_frsize, max(_LEAST_ENTRY_BYTES, found.f_frsize, entry_bytes))

    def file_bytes(self, size_bytes: int) -> int:
        """Return the space that an artifact takes if it is one file of this size."""
        return self.tree_bytes(TreeSize(-(-size_bytes // self.block_bytes) * self.block_bytes, 1))

    def tree_bytes(self, size: TreeSize) -> int:
        """Return the space that an artifact takes if it is an unpacked tree of this size."""
        return max(_LEAST_ARTIFACT_BYTES, size.size_bytes, size.files * self.entry_bytes)

    def links_bytes(self, names: int) -> int:
        """Return the space that a directory with this many links takes; 64 are free, enough for most sessions."""
        return max(0, names - _FREE_LINKS) * self.entry_bytes


class RoomGiver(Protocol):
    """Store in which an artifact reserves space."""

    volume: Volume

    def check_possible(self, owned: OwnedArtifacts, artifact: StoredArtifact, room_bytes: int) -> None:
        """Raise LimitError if an artifact of this owner can never have this much space."""

    def take(self, owned: OwnedArtifacts, more_bytes: int) -> None:
        """Reserve space; raise PoolFullError if there is too little."""

    def give_back(self, owned: OwnedArtifacts, less_bytes: int) -> None:
        """Give space back."""

    async def vacated(self) -> None:
        """Wait until the reserved space is free on the disk."""

    def most_entries(self) -> int:
        """Return how many files and directories an empty store can hold."""


class Room:
    """Space that an artifact reserves in the store while its bytes arrive; created by `ArtifactStore.arriving`."""

    def __init__(self, giver: RoomGiver, owned: OwnedArtifacts, artifact: StoredArtifact) -> None:
        self.volume = giver.volume
        self._giver = giver
        self._owned = owned
        self._artifact = artifact
        self._taken_bytes = 0

    def grow_to(self, size_bytes: int) -> None:
        """Reserve space for this many bytes of the artifact in total; raise PoolFullError or LimitError."""
        self._grow_to(self.volume.file_bytes(size_bytes))

    async def vacated(self) -> None:
        """Wait until the disk has the space that was taken."""
        await self._giver.vacated()

    async def unpack_to(self, tree_bytes: int) -> None:
        """Reserve space for the tree in addition to the archive's space.

        Raises PoolFullError if there is too little space, and LimitError if there can never be enough.
        """
        self._grow_to(self._file_bytes + tree_bytes)
        await self.vacated()

    def measure(self, tree: Path) -> TreeSize:
        """Return the size of an unpacked tree on disk; blocks."""
        return tree_size(tree, most_files=self._giver.most_entries())

    def settle(self, tree: TreeSize) -> None:
        """Correct the reserved space to the size of the measured tree; raise what `unpack_to` raises.

        The corrected space is never below the size of the archive, because some file systems report the space of a file
        only after they have written the file to the disk.
        """
        room_bytes = max(self._file_bytes, self.volume.tree_bytes(tree))
        self._grow_to(room_bytes)
        self._charge(room_bytes - self._taken_bytes)

    def keep(self, path: Path, original: Original) -> None:
        """Mark the artifact as stored at `path`. Its space stays reserved."""
        self._artifact.path = path
        self._artifact.original = original
        self._artifact.kept_bytes = self._taken_bytes
        self._artifact.arriving_bytes -= self._taken_bytes
        self._taken_bytes = 0

    def end(self) -> None:
        """Give back all space that no call of `keep` has kept."""
        self._charge(-self._taken_bytes)

    @property
    def _file_bytes(self) -> int:
        return self.volume.file_bytes(self._artifact.key.size_bytes)

    def _grow_to(self, room_bytes: int) -> None:
        if room_bytes > self._taken_bytes:
            self._giver.check_possible(self._owned, self._artifact, room_bytes)
            self._charge(room_bytes - self._taken_bytes)

    def _charge(self, more_bytes: int) -> None:
        if more_bytes > 0:
            self._giver.take(self._owned, more_bytes)
        else:
            self._giver.give_back(self._owned, -more_bytes)
        self._taken_bytes += more_bytes
        self._artifact.arriving_bytes += more_bytes
