# SPDX-License-Identifier: Apache-2.0
"""Directories whose content was made to last."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from updraft_server.linux.hostile_trees import empty_directory, move_into

# Only a hang reaches it.
HANG_SECONDS = 60.0
DEPTH = 3000


def deep(tree: Path) -> None:
    """Deeper than Python recurses, longer than a path may be, and more than a process has descriptors for."""
    directory = os.open(tree, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("nested-directory", dir_fd=directory)
        inner = os.open("nested-directory", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = inner
    os.close(directory)


def wide(tree: Path) -> None:
    for number in range(500):
        (tree / f"directory{number}").mkdir()
        (tree / f"directory{number}" / "file").touch()


def unreadable(tree: Path) -> None:
    (tree / "closed" / "inner").mkdir(parents=True)
    (tree / "closed" / "inner" / "file").touch()
    (tree / "closed" / "inner").chmod(0)
    (tree / "closed").chmod(0)


def oddly_named(tree: Path) -> None:
    for name in (b"\xff\xfe", b"new\nline", b"-rf", b"*", b"x" * 255):
        directory = tree / os.fsdecode(name)
        directory.mkdir()
        (directory / "file").touch()


def special(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    (tree / "loop").symlink_to(tree / "loop")
    (tree / "dangling").symlink_to("/nonexistent")


@pytest.mark.parametrize("make", [deep, wide, unreadable, oddly_named, special])
def test_everything_is_removed(tmp_path: Path, make: Callable[[Path], None]) -> None:
    trash = tmp_path / "trash"
    (trash / "tree").mkdir(parents=True)
    make(trash / "tree")
    assert empty_directory(str(trash), within_seconds=HANG_SECONDS)
    assert not list(trash.iterdir())


def test_what_a_link_leads_to_stays(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o500)
    kept = elsewhere / "kept"
    trash = tmp_path / "trash"
    (trash / "tree" / "inner").mkdir(parents=True)
    for directory in (trash, trash / "tree", trash / "tree" / "inner"):
        (directory / "link").symlink_to(elsewhere)
    elsewhere.chmod(0o700)
    kept.touch()
    elsewhere.chmod(0o500)
    assert empty_directory(str(trash), within_seconds=HANG_SECONDS)
    assert kept.exists()
    assert elsewhere.stat().st_mode & 0o777 == 0o500
    elsewhere.chmod(0o700)


def test_what_cannot_be_removed_in_time_is_left(tmp_path: Path) -> None:
    wide(tmp_path)
    assert not empty_directory(str(tmp_path), within_seconds=0.0)


def test_a_closed_directory_is_moved_out_of_the_way(tmp_path: Path) -> None:
    trash = tmp_path / "trash"
    trash.mkdir()
    (tmp_path / "closed" / "inner").mkdir(parents=True)
    (tmp_path / "closed").chmod(0)
    move_into(str(trash), str(tmp_path), "closed")
    assert (trash / "closed" / "inner").is_dir()
