# SPDX-License-Identifier: Apache-2.0
"""Wheels and jars without the machine code of other GPUs."""

import struct
import sys
import zipfile
from pathlib import Path

import pytest
from tests.support.paths import REPOSITORY

sys.path.insert(0, str(REPOSITORY / ".ci"))

from prune_gpu_code import prune_archive, prune_library

NAMES = b"\0.shstrtab\0.nv_fatbin\0"


def entry(kind: int, architecture: int, code: bytes) -> bytes:
    return struct.pack("<HHIQ12xI", kind, 1, 64, len(code), architecture).ljust(64, b"\1") + code


def fat_binary(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(section: bytes) -> bytearray:
    """Return an ELF file with a section of fat binaries."""
    header, names_at = 64, 64
    section_at = names_at + len(NAMES)
    headers_at = section_at + len(section)
    headers = [(0, 0, 0), (1, names_at, len(NAMES)), (NAMES.index(b".nv_fatbin"), section_at, len(section))]
    packed = b"".join(struct.pack("<I4x8x8xQQ24x", *each) for each in headers)
    start = b"\x7fELF\x02".ljust(40, b"\0") + struct.pack("<Q10xHHH", headers_at, 64, len(headers), 1)
    return bytearray(start.ljust(header, b"\0") + NAMES + section + packed)


def test_the_code_of_other_gpus_becomes_zeros_and_everything_else_stays() -> None:
    wanted, other, source = entry(2, 90, b"wanted"), entry(2, 80, b"unwanted"), entry(1, 90, b"assembly")
    alone = fat_binary(entry(2, 80, b"only this"))
    pruned = library(fat_binary(other, wanted, source) + bytes(8) + alone)
    expected = library(
        fat_binary(entry(2, 80, bytes(8)), wanted, entry(1, 90, bytes(8))) + bytes(8) + alone,
    )
    assert prune_library(pruned, 90) == 16
    assert pruned == expected


@pytest.mark.parametrize("data", [b"no library", b"\x7fELF\x02".ljust(64, b"\0")])
def test_other_files_stay(data: bytes) -> None:
    found = bytearray(data)
    assert prune_library(found, 90) == 0
    assert found == data


def test_an_archive_keeps_its_members_but_for_those_to_leave_out(tmp_path: Path) -> None:
    source, target = tmp_path / "a.jar", tmp_path / "b.jar"
    with zipfile.ZipFile(source, "w") as jar:
        jar.writestr("lib/libcudf.so", library(fat_binary(entry(2, 80, b"x" * 100), entry(2, 90, b"y"))))
        jar.writestr("lib/libother.so.3", b"not a library")
        jar.writestr("spark400/A.class", b"a")
        jar.writestr("spark413/A.class", b"b")
    prune_archive(source, target, 90, r"^spark(?!413/)\d+/")
    with zipfile.ZipFile(target) as jar:
        assert jar.namelist() == ["lib/libcudf.so", "lib/libother.so.3", "spark413/A.class"]
        assert b"xxx" not in jar.read("lib/libcudf.so")
        assert jar.read("lib/libother.so.3") == b"not a library"
