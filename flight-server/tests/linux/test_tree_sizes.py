# SPDX-License-Identifier: Apache-2.0
"""What lies in a directory is found however it is hidden, and counted once."""

import os
from pathlib import Path

from updraft_server.linux.tree_sizes import TreeSize, tree_size

MIB = 1 << 20


def fill(path: Path, size: int = MIB) -> None:
    path.write_bytes(b"x" * size)
    # Some file systems say what a file takes only once that is on the disk.
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
