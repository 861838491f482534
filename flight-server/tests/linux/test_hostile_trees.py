# SPDX-License-Identifier: Apache-2.0
"""Directory trees that are built to resist removal."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from updraft_server.linux.hostile_trees import TreeSize, empty_directory, move_into, tree_size

# Reached only if something hangs.
HANG_SECONDS = 60.0
DEPTH = 3000


def deep(tree: Path) -> None:
    """Make a tree deeper than Python's recursion limit, the longest path and the number of available descriptors."""
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


MIB = 1 << 20


def fill(path: Path, size: int = MIB) -> None:
    path.write_bytes(b"x" * size)
    # Some file systems report a file's blocks only once it is on disk.
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def test_files_count_with_what_they_take_on_the_disk(tmp_path: Path) -> None:
    fill(tmp_path / "one")
    (tmp_path / "directory").mkdir()
    fill(tmp_path / "directory" / "two")
    os.truncate(tmp_path / "directory" / "two", 1 << 40)
    found = tree_size(tmp_path, most_files=100)
    assert found.files == 3
    assert 2 * MIB <= found.size_bytes < 3 * MIB


def test_names_of_one_file_count_once_and_links_are_not_followed(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    fill(scratch / "one")
    (scratch / "again").hardlink_to(scratch / "one")
    fill(tmp_path / "elsewhere")
    (scratch / "link").symlink_to(tmp_path / "elsewhere")
    (scratch / "upwards").symlink_to("..")
    found = tree_size(scratch, most_files=100)
    assert found.files == 4
    assert MIB <= found.size_bytes < 2 * MIB


def test_neither_depth_nor_long_names_hide_a_file(tmp_path: Path) -> None:
    top = os.open(tmp_path, os.O_RDONLY)
    directory = os.dup(top)
    for _ in range(300):
        os.mkdir("n" * 200, dir_fd=directory)
        inner = os.open("n" * 200, os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = inner
    file = os.open("deep", os.O_WRONLY | os.O_CREAT, dir_fd=directory)
    os.write(file, b"x" * MIB)
    os.fsync(file)
    for opened in (file, directory, top):
        os.close(opened)
    fill(tmp_path / "zz")
    found = tree_size(tmp_path, most_files=1000)
    assert found.files == 302
    assert found.size_bytes >= 2 * MIB


def test_a_closed_directory_hides_nothing(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    (scratch / "closed" / "inner").mkdir(parents=True)
    fill(scratch / "closed" / "inner" / "file")
    for path in (scratch / "closed" / "inner", scratch / "closed", scratch):
        path.chmod(0)
    found = tree_size(scratch, most_files=100)
    assert found.files == 3
    assert found.size_bytes >= MIB


def test_nobody_counts_for_ever(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "file").touch()
    assert tree_size(tmp_path, most_files=5).files == 6
    assert tree_size(tmp_path, most_files=25).files == 26


def test_what_is_gone_takes_nothing(tmp_path: Path) -> None:
    assert tree_size(tmp_path / "gone", most_files=5) == TreeSize()
    (tmp_path / "file").touch()
    assert tree_size(tmp_path / "file", most_files=5) == TreeSize()
