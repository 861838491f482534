# SPDX-License-Identifier: Apache-2.0
"""Room of one artifact in the store from its first byte on: it grows before the disk is used, and ends as measured.

An archive takes room as it arrives, then for its tree beside it, and once it is removed for the tree alone.
"""

from pathlib import Path
from typing import Protocol

from updraft_server.front.artifacts.originals import Original
from updraft_server.front.artifacts.stored import Belongings, StoredArtifact
from updraft_server.front.artifacts.volume import Volume
from updraft_server.linux.tree_sizes import TreeSize, tree_size


class RoomGiver(Protocol):
    """The store, as room is taken from it."""

    volume: Volume

    def check_possible(self, belongings: Belongings, artifact: StoredArtifact, room_bytes: int) -> None:
        """Raise LimitError for more than an artifact of this owner can ever have."""

    def take(self, belongings: Belongings, more_bytes: int) -> None:
        """Take room; raises PoolFullError."""

    def give_back(self, belongings: Belongings, less_bytes: int) -> None:
        """Give room back."""

    async def vacated(self) -> None:
        """Wait until the disk has the room that was taken."""

    def most_entries(self) -> int:
        """Return how many entries fit, if nothing else is stored."""


class Room:
    """Room that an artifact takes in the store while it arrives; made by `ArtifactStore.arriving`."""

    def __init__(self, giver: RoomGiver, belongings: Belongings, artifact: StoredArtifact) -> None:
        self.volume = giver.volume
        self._giver = giver
        self._belongings = belongings
        self._artifact = artifact
        self._taken_bytes = 0

    def grow_to(self, size_bytes: int) -> None:
        """Take the room of so many bytes in all; raises PoolFullError."""
        self._grow_to(self.volume.file_bytes(size_bytes))

    async def vacated(self) -> None:
        """Wait until what gave way is off the disk."""
        await self._giver.vacated()

    async def unpack_to(self, tree_bytes: int) -> None:
        """Have so much room beside the archive; raises PoolFullError, or LimitError where it can never be had."""
        self._grow_to(self._file_bytes + tree_bytes)
        await self.vacated()

    def measure(self, tree: Path) -> TreeSize:
        """Return what an unpacked tree takes on the disk; blocks."""
        return tree_size(tree, most_files=self._giver.most_entries())

    def settle(self, tree: TreeSize) -> None:
        """Have the room of the tree alone, as measured; raises what `unpack_to` raises.

        It is never less than that of the archive: some file systems say what a file takes only once it is on the disk.
        """
        room_bytes = max(self._file_bytes, self.volume.tree_bytes(tree))
        self._grow_to(room_bytes)
        self._charge(room_bytes - self._taken_bytes)

    def keep(self, path: Path, original: Original) -> None:
        """The artifact is there from now on, and keeps the room."""
        self._artifact.path = path
        self._artifact.original = original
        self._artifact.kept_bytes = self._taken_bytes
        self._artifact.arriving_bytes -= self._taken_bytes
        self._taken_bytes = 0

    def end(self) -> None:
        """Give back what was not kept."""
        self._charge(-self._taken_bytes)

    @property
    def _file_bytes(self) -> int:
        return self.volume.file_bytes(self._artifact.key.size_bytes)

    def _grow_to(self, room_bytes: int) -> None:
        if room_bytes > self._taken_bytes:
            self._giver.check_possible(self._belongings, self._artifact, room_bytes)
            self._charge(room_bytes - self._taken_bytes)

    def _charge(self, more_bytes: int) -> None:
        if more_bytes > 0:
            self._giver.take(self._belongings, more_bytes)
        else:
            self._giver.give_back(self._belongings, -more_bytes)
        self._taken_bytes += more_bytes
        self._artifact.arriving_bytes += more_bytes
