# SPDX-License-Identifier: Apache-2.0
"""An archive that cannot be unpacked is its client's error, and the message reveals nothing about this host."""

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hostile_archives import RoomOf

from updraft.errors import ProtocolError
from updraft_server.front.artifacts.arrival import Arrival
from updraft_server.front.artifacts.needs import ArtifactKey, Form
from updraft_server.front.artifacts.unpackers import Unpackers


def archive(*members: tuple[str, dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as writing:
        for name, fields in members:
            info = tarfile.TarInfo(name)
            for field, value in fields.items():
                setattr(info, field, value)
            writing.addfile(info)
    return buffer.getvalue()


async def unpack(directory: Path, data: bytes) -> None:
    key = ArtifactKey(hashlib.sha256(data).digest(), len(data), Form.DIRECTORY)
    async with Arrival(key, directory / "1") as arrival:
        await arrival.add(0, memoryview(data))
        await arrival.check(Unpackers(), RoomOf())


def leftovers(directory: Path) -> list[Path]:
    return list(directory.iterdir())


SYMLINK, HARD_LINK = {"type": tarfile.SYMTYPE}, {"type": tarfile.LNKTYPE}

HOSTILE = {
    "a name that is too long": archive(("n" * 300, {})),
    "a file as a directory": archive(("a", {}), ("a/b", {})),
    "a directory as a file": archive(("a/b", {}), ("a", {})),
    "a circle of links": archive(("a", {**SYMLINK, "linkname": "b"}), ("b", {**SYMLINK, "linkname": "a"}), ("a/c", {})),
    "a link to nothing": archive(("a", {**HARD_LINK, "linkname": "nothing"})),
    "a path without end": archive(("/".join(["d" * 200] * 30), {})),
    "a time after the end of all time": archive(("a", {"pax_headers": {"mtime": str(2**80)}})),
    "a time before it": archive(("a", {"pax_headers": {"mtime": str(-(2**80))}})),
    "an infinite time": archive(("a", {"pax_headers": {"mtime": "inf"}})),
    "a name that leads out": archive(("../../a", {})),
    "a link that leads out": archive(("a", {**SYMLINK, "linkname": "../../../etc/passwd"})),
    "a link to an absolute path": archive(("a", {**SYMLINK, "linkname": "/etc/passwd"})),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
async def test_an_archive_that_cannot_be_unpacked_is_the_clients_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ProtocolError, match="not an archive that can be unpacked") as raised:
        await unpack(tmp_path, data)
    assert str(tmp_path) not in raised.value.message
    assert leftovers(tmp_path) == []
