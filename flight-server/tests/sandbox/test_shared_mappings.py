# SPDX-License-Identifier: Apache-2.0
"""Shared memory in a worker is backed by a file, if that can be measured."""

import errno
import functools
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from sandboxed_children import SANDBOX, error_of, in_a_child, needs_filters, refused

from updraft_server.sandbox import shared_mappings
from updraft_server.sandbox.shared_mappings import SharedMapping, keep_in_files, keep_private, replace_mmap

SHARED, PRIVATE, SHARED_VALIDATE, ANONYMOUS, NO_RESERVE = 0x01, 0x02, 0x03, 0x20, 0x4000


def mapped(flags: int, file: int = -1) -> int:
    return error_of("mmap", 0, mmap.PAGESIZE, mmap.PROT_READ, flags, file, 0)


@needs_filters
@pytest.mark.parametrize("flags", [SHARED | ANONYMOUS, SHARED_VALIDATE | ANONYMOUS, SHARED | ANONYMOUS | NO_RESERVE])
def test_shared_memory_without_a_file_is_refused(flags: int) -> None:
    assert refused(lambda: mapped(flags), errno.EPERM)


@needs_filters
def test_private_memory_and_files_are_mapped(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"four")
    file = os.open(tmp_path / "file", os.O_RDWR)
    try:
        for what in ((PRIVATE | ANONYMOUS,), (SHARED, file), (SHARED_VALIDATE, file), (PRIVATE, file)):
            assert in_a_child(functools.partial(mapped, *what), sandboxed=SANDBOX) == 0
    finally:
        os.close(file)


@needs_filters
def test_where_a_gpu_is_they_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shared_mappings, "_DRIVER_THAT_NEEDS_THEM", tmp_path)
    with_a_gpu = type(SANDBOX)()
    assert not with_a_gpu.refuses_shared_mappings
    assert in_a_child(lambda: mapped(SHARED | ANONYMOUS), sandboxed=with_a_gpu) == 0


def lies_in(directory: Path, keep: Callable[[], None] = keep_in_files, **options: int) -> bool:
    """Return whether a file of the directory backs a mapping, in a child that was told how to keep memory."""

    def look() -> int:
        keep()
        with SharedMapping(-1, 5000, **options) as mapping:
            mapping[:4]
            return int(str(directory) in Path("/proc/self/maps").read_text())

    return bool(in_a_child(look, sandboxed=None))


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make a directory that stands in for /dev/shm."""
    directory = tmp_path / "memory"
    directory.mkdir()
    monkeypatch.setattr(shared_mappings, "SHARED_MEMORY_PATH", str(directory))
    return directory


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def test_a_mapping_that_is_shared_lies_in_the_memory_of_the_worker(memory: Path) -> None:
    assert lies_in(memory)
    assert lies_in(memory, access=mmap.ACCESS_READ)
    assert lies_in(memory, flags=SHARED | ANONYMOUS)
    assert not list(memory.iterdir())


def test_a_mapping_that_is_private_does_not(memory: Path) -> None:
    assert not lies_in(memory, flags=PRIVATE)
    assert not lies_in(memory, access=mmap.ACCESS_COPY)


def test_where_no_other_process_is_it_needs_no_file(memory: Path, temporary: Path) -> None:
    assert not lies_in(memory, keep_private)
    assert not lies_in(temporary, keep_private)


def test_before_a_worker_is_confined_it_is_the_kernels(memory: Path) -> None:
    assert not lies_in(memory, lambda: None)


def test_what_has_no_room_there_lies_with_temporary_files(
    memory: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = os.statvfs
    monkeypatch.setattr(
        os, "statvfs", lambda path: SimpleNamespace(f_bavail=1, f_frsize=4096) if path == str(memory) else free(path)
    )
    assert lies_in(temporary)


def test_where_there_is_no_such_directory_it_lies_with_temporary_files(memory: Path, temporary: Path) -> None:
    memory.rmdir()
    assert lies_in(temporary)


def test_it_takes_the_place_of_pythons_own() -> None:
    def replace() -> int:
        replace_mmap()
        keep_private()
        with mmap.mmap(-1, 4096) as mapping:
            return 0 if type(mapping) is SharedMapping and repr(type(mapping)) == "<class 'mmap.mmap'>" else 1

    assert in_a_child(replace, sandboxed=None) == 0
