# SPDX-License-Identifier: Apache-2.0
"""Store room is counted in blocks and inodes, on any volume, by the scarcer of the two."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from updraft_server.front.artifacts.room import Volume
from updraft_server.linux.hostile_trees import TreeSize

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

VOLUMES = {
    # Bytes of a block, blocks, inodes; room of a file of 100,000 bytes and of a tree of 100 empty directories.
    "ext4": (4 * KIB, 25 * MIB, 6_400_000, 100 * KIB, 100 * 16777),
    "few inodes": (4 * KIB, MIB, 1000, 4 * GIB // 1000, 100 * (4 * GIB // 1000)),
    "inodes as needed": (4 * KIB, MIB, 0, 100 * KIB, 100 * 4 * KIB),
    "more inodes than blocks": (4 * KIB, MIB, 10 * MIB, 100 * KIB, 100 * 4 * KIB),
    "large blocks": (64 * KIB, MIB, 64 * MIB, 128 * KIB, 100 * 64 * KIB),
}


@pytest.mark.parametrize(("block_bytes", "blocks", "inodes", "file_bytes", "tree_bytes"), VOLUMES.values(), ids=VOLUMES)
def test_the_scarcer_one_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    block_bytes: int,
    blocks: int,
    inodes: int,
    file_bytes: int,
    tree_bytes: int,
) -> None:
    found = SimpleNamespace(f_frsize=block_bytes, f_blocks=blocks, f_files=inodes)
    monkeypatch.setattr(os, "statvfs", lambda _path: found)
    volume = Volume.of(tmp_path)
    assert volume.file_bytes(100_000) == file_bytes
    assert volume.tree_bytes(TreeSize(0, 100)) == tree_bytes
    assert volume.tree_bytes(TreeSize(GIB, 100)) == GIB


def test_a_small_artifact_takes_more_than_its_bytes(tmp_path: Path) -> None:
    volume = Volume.of(tmp_path)
    assert volume.file_bytes(0) == volume.file_bytes(1) >= 64 * KIB
