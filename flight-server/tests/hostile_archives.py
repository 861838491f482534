# SPDX-License-Identifier: Apache-2.0
"""Archives that claim, nest or repeat more than they contain, by their effect. Large ones are mostly sparse."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

from updraft.errors import PoolFullError
from updraft_server.front.artifacts.room import Volume
from updraft_server.front.artifacts.unpackers import UnpackLimits
from updraft_server.linux.hostile_trees import TreeSize, tree_size

GIB = 1024**3
LIMITS = UnpackLimits(members=100, names_bytes=9000)
"""Limits of every pool, but smaller if they would take long to reach."""
_BLOCK_BYTES = 512


class RoomOf:
    """Room for this many bytes of an unpacked archive; records what was requested and measured."""

    volume = Volume(block_bytes=4096, entry_bytes=16384)

    def __init__(self, limit_bytes: int = 10 * GIB) -> None:
        self._limit_bytes = limit_bytes
        self.asked: list[int] = []

    async def unpack_to(self, tree_bytes: int) -> None:
        self.asked.append(tree_bytes)
        if tree_bytes > self._limit_bytes:
            raise PoolFullError(f"{tree_bytes} bytes are too many", retry_after_milliseconds=1)

    def measure(self, tree: Path) -> TreeSize:
        return tree_size(tree, most_files=1000)

    def settle(self, tree: TreeSize) -> None:
        pass


def header(name: str, size_bytes: int = 0, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return the header of one member."""
    info = tarfile.TarInfo(name)
    info.size, info.type = size_bytes, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def checked(block: bytearray) -> bytes:
    """Return the header with the checksum of its current bytes."""
    block[148:156] = b" " * 8
    block[148:156] = f"{sum(block):06o}\0 ".encode()
    return bytes(block)


def pax(**records: str) -> bytes:
    """Return a member whose pax header has these records."""
    return _pax_header(records) + header("member")


def _pax_header(records: dict[str, str]) -> bytes:
    info = tarfile.TarInfo("member")
    info.pax_headers = records
    # The library writes the member's own header last.
    return info.tobuf(tarfile.PAX_FORMAT)[:-_BLOCK_BYTES]


def sparse(*, extended: bool, parts: tuple[tuple[int, int], ...] = (), size_bytes: int = 0) -> bytes:
    """Return an old GNU header of a sparse file; with `extended`, more of its map follows."""
    block = bytearray(header("sparse", 0, tarfile.GNUTYPE_SPARSE))
    for number, (offset, length) in enumerate(parts):
        start = 386 + number * 24
        block[start : start + 24] = f"{offset:011o}\0{length:011o}\0".encode()
    block[482] = extended
    block[483:495] = f"{size_bytes:011o}\0".encode()
    return checked(block)


def endless_map() -> bytes:
    """Return 4 MiB of a sparse map in which every block says that another one follows."""
    block = bytearray(_BLOCK_BYTES)
    block[0:24] = f"{1:011o}\0{1:011o}\0".encode()
    block[504] = 1
    return sparse(extended=True) + bytes(block) * 8192


def endless_pax_map() -> bytes:
    records = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1"}
    return _pax_header(records) + header("member", 8 * 1024**2) + b"99999999\n" + b"1\n" * 4 * 1024**2


def members(count: int) -> bytes:
    return b"".join(header(f"member{number}") for number in range(count)) + bytes(1024)


def with_hole(start: bytes) -> Callable[[Path], None]:
    """Return a writer of a file with these bytes and a hole of 1 GiB."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.write(start)
            file.truncate(len(start) + GIB + 1024)

    return write


def of(data: bytes) -> Callable[[Path], None]:
    """Return a writer of a file with just these bytes."""

    def write(path: Path) -> None:
        path.write_bytes(data)

    return write


def of_directories(count: int, *, depth: int) -> bytes:
    """Return this many empty directories, each nested this deep; the archive names only the innermost."""
    deep = "/".join("d" * (depth - 1))
    return b"".join(header(f"{number}/{deep}", kind=tarfile.DIRTYPE) for number in range(count)) + bytes(1024)


def named(*names: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as writing:
        for name in names:
            writing.addfile(tarfile.TarInfo(name))
    return buffer.getvalue()


HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a long name of a gibibyte": (with_hole(header("././@LongLink", GIB, tarfile.GNUTYPE_LONGNAME)), "headers"),
    "a pax header of 100 MB": (with_hole(header("pax", 100_000_000, tarfile.XHDTYPE)), "headers"),
    "a global pax header of a gibibyte": (with_hole(header("pax", GIB, tarfile.XGLTYPE)), "headers"),
    "a long name of less than no bytes": (
        of(header("name", -1, tarfile.GNUTYPE_LONGNAME) + bytes(1024)),
        "not an archive that can be unpacked",
    ),
    "headers without end": (
        of((header("name", 1, tarfile.GNUTYPE_LONGNAME) + b"n" * 512) * 5000),
        "not an archive that can be unpacked",
    ),
    "a sparse map without end": (of(endless_map()), "headers"),
    "a pax sparse map without end": (of(endless_pax_map()), "headers"),
    "a size of less than no bytes": (of(pax(size="-1024") + bytes(1024)), "not an archive that can be unpacked"),
    "a size beyond its archive": (of(header("bomb", 2**40) + bytes(1024)), "unpacks to more bytes"),
    "sizes that only together lie": (
        of(sparse(extended=False, size_bytes=3000) * 8 + bytes(1024)),
        "unpacks to more bytes",
    ),
    "a sparse part beyond its file": (
        of(sparse(extended=False, parts=((10, 4096),), size_bytes=100) + bytes(9000)),
        "outside of its 100 bytes",
    ),
    "more than its members": (of(members(101)), "more than 100 members"),
    "a name longer than any path": (of(named("/".join(["n" * 200] * 30))), "a name has 6029 bytes"),
    "a path of many parts": (of(named("/".join("d" * 200))), "more than 128 parts"),
    "names without end": (
        of(named(*(f"{number:04}" + "n" * 150 for number in range(99)))),
        "names have more than 9000",
    ),
}
