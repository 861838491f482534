# SPDX-License-Identifier: Apache-2.0
"""Copy a wheel or a jar without the machine code of other GPUs, for a test on a machine without a network.

The code of other GPUs in the CUDA libraries is overwritten with zeros, which take almost no room when compressed.
Headers and offsets stay unchanged, so the libraries still load. `--leave-out` names further members to leave out.
"""

import argparse
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

# ELF of 64 bits: offset, size and number of the section headers, and the index of the section with the section names.
_SECTIONS = struct.Struct("<40xQ10xHHH")
_SECTION = struct.Struct("<I4x8x8xQQ")
_FAT_BINARIES = b".nv_fatbin\0"
# Header of a fat binary: magic number, version, size of the header, size of its entries.
_FAT_BINARY = struct.Struct("<IHHQ")
_FAT_BINARY_MAGIC = 0xBA55ED50
# Header of an entry: kind (2 is machine code), version, size of the header, size of the code; the architecture follows.
_ENTRY = struct.Struct("<HHIQ12xI")
_MACHINE_CODE = 2
_LIBRARY = re.compile(r"\.so(\.\d+)*$")


def prune_library(library: bytearray, architecture: int) -> int:
    """Zero the code of other architectures in a library; return the number of zeroed bytes.

    A fat binary without code for this architecture stays unchanged.
    """
    zeroed = 0
    section = _fat_binaries(library)
    if section is None:
        return 0
    at, end = section
    while at + _FAT_BINARY.size <= end:
        magic, _, header_bytes, entries_bytes = _FAT_BINARY.unpack_from(library, at)
        if magic != _FAT_BINARY_MAGIC:
            at += 8
            continue
        entries = list(_entries(library, at + header_bytes, entries_bytes))
        if any(is_wanted for is_wanted, _, _ in _marked(entries, architecture)):
            for is_wanted, start, size in _marked(entries, architecture):
                if not is_wanted:
                    library[start : start + size] = bytes(size)
                    zeroed += size
        at += header_bytes + entries_bytes
    return zeroed


def prune_archive(source: Path, target: Path, architecture: int, leave_out: str) -> None:
    """Copy an archive, with its libraries pruned and without the members that match `leave_out`."""
    left_out = re.compile(leave_out) if leave_out else None
    with zipfile.ZipFile(source) as wheel, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as copy:
        for member in wheel.infolist():
            if left_out is not None and left_out.search(member.filename):
                continue
            data = bytearray(wheel.read(member))
            if _LIBRARY.search(member.filename):
                zeroed = prune_library(data, architecture)
                print(f"{member.filename}: {len(data) / 1e6:.0f} MB, of which {zeroed / 1e6:.0f} MB are zeros now")
            copy.writestr(member, bytes(data), zipfile.ZIP_DEFLATED)
    print(f"{target}: {source.stat().st_size / 1e6:.0f} MB became {target.stat().st_size / 1e6:.0f}")


def _fat_binaries(library: bytearray) -> tuple[int, int] | None:
    """Return begin and end of the section with the fat binaries; None if the library has none."""
    if library[:5] != b"\x7fELF\x02":
        return None
    at, size, count, names = _SECTIONS.unpack_from(library)
    headers = [_SECTION.unpack_from(library, at + index * size) for index in range(count)]
    if not headers:
        return None
    names_at = headers[names][1]
    for name, start, length in headers:
        if library[names_at + name : names_at + name + len(_FAT_BINARIES)] == _FAT_BINARIES:
            return start, start + length
    return None


def _entries(library: bytearray, at: int, entries_bytes: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield kind, architecture, begin and size of the code of each entry of a fat binary."""
    end = at + entries_bytes
    while at < end:
        kind, _, header_bytes, code_bytes, architecture = _ENTRY.unpack_from(library, at)
        yield kind, architecture, at + header_bytes, code_bytes
        at += header_bytes + code_bytes


def _marked(entries: list[tuple[int, int, int, int]], architecture: int) -> Iterator[tuple[bool, int, int]]:
    for kind, found, start, size in entries:
        yield kind == _MACHINE_CODE and found == architecture, start, size


def main() -> None:
    """Copy the archive that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--arch", type=int, default=90, help="GPU whose code stays: 90 is an H100 or H200")
    parser.add_argument("--leave-out", default="", help="regular expression of members to leave out")
    options = parser.parse_args()
    prune_archive(options.source, options.target, options.arch, options.leave_out)


if __name__ == "__main__":
    main()
