# SPDX-License-Identifier: Apache-2.0
"""Space that files take on the store's volume, as one number for blocks and inodes.

A volume can run out of either. Therefore an entry (a file, directory or link) counts as at least the volume's bytes per
inode, so a store that may have a tenth of the volume's bytes gets a tenth of its inodes.
"""

import os
from pathlib import Path
from typing import NamedTuple, Self

from updraft_server.linux.hostile_trees import TreeSize

# Least bytes of an entry. Some file systems create inodes on demand and report none, or so many that each would be
# nearly free.
_LEAST_ENTRY_BYTES = 4096
# Least bytes of an artifact, because even a small one costs memory of the front.
_LEAST_ARTIFACT_BYTES = 64 * 1024
# Number of links per directory that take no space, because the store bounds the number of such directories.
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
        """Return the space of an artifact that is one file of this size."""
        return self.tree_bytes(TreeSize(-(-size_bytes // self.block_bytes) * self.block_bytes, 1))

    def tree_bytes(self, size: TreeSize) -> int:
        """Return the space of an artifact that is a tree of this size."""
        return max(_LEAST_ARTIFACT_BYTES, size.size_bytes, size.files * self.entry_bytes)

    def links_bytes(self, names: int) -> int:
        """Return the space of a directory with this many links; the first 64 are free, enough for most sessions."""
        return max(0, names - _FREE_LINKS) * self.entry_bytes
