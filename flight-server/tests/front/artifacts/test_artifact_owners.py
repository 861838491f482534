# SPDX-License-Identifier: Apache-2.0
"""Artifacts are usable only by the owner that sent them; a digest gives other owners no access and no information."""

import hashlib
import stat
from pathlib import Path

import pytest
from artifact_clients import MODULE, VALUE, Fixture, artifact, fixture, parts
from front_harness import Running

from updraft.v1.exchange_pb2 import Owner

MINE = Owner(tenant="team", application_id="app-1", session_id="session-1")
OTHERS = {
    "tenant": Owner(tenant="others", application_id="app-1", session_id="session-1"),
    "application": Owner(tenant="team", application_id="app-2", session_id="session-1"),
    "session": Owner(tenant="team", application_id="app-1", session_id="session-2"),
    "classic": Owner(tenant="team", application_id="app-1"),
    "nobody": Owner(tenant="team"),
    "seams": Owner(tenant="team", application_id="app-1session", session_id="-1"),
}
DIGEST = hashlib.sha256(VALUE).digest()


def links(path: Path) -> int:
    return path.stat().st_nlink


async def same_session(pool: Fixture) -> bool:
    """Return whether the owner's value is still in the store."""
    client = await pool.client(artifact(VALUE, broadcast_id=1), owner=MINE)
    there = await client.wanted() == set()
    await client.end()
    return there


async def give_value(pool: Fixture) -> None:
    client = await pool.client(artifact(VALUE, broadcast_id=1), owner=MINE)
    await client.wanted()
    await client.send(*parts(VALUE))
    await client.wanted()
    await client.end()


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
async def test_who_knows_a_digest_has_to_send_the_bytes(running_front: Running, tmp_path: Path, other: Owner) -> None:
    async with fixture(running_front, tmp_path) as pool:
        await give_value(pool)
        mine = Path(pool.provided.broadcasts["1"])
        client = await pool.client(artifact(VALUE, broadcast_id=1), owner=other)
        assert await client.wanted() == {DIGEST}
        await client.send(*parts(VALUE))
        assert await client.wanted() == set()
        await client.end()
        theirs = Path(pool.provided.broadcasts["1"])
        assert theirs.parents[1] != mine.parents[1]
        assert links(mine) == 1
        assert await same_session(pool)


async def test_a_tenant_in_the_header_is_another_owner(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path) as pool:
        await give_value(pool)
        client = await pool.client(artifact(VALUE, broadcast_id=1), owner=MINE, tenant="others")
        assert await client.wanted() == {DIGEST}


async def test_what_another_owner_is_sending_is_not_waited_for(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path) as pool:
        sender = await pool.client(artifact(VALUE, broadcast_id=1), owner=MINE)
        await sender.wanted()
        for other in OTHERS.values():
            client = await pool.client(artifact(VALUE, broadcast_id=1), owner=other)
            assert await client.wanted() == {DIGEST}
            client.leave()


async def test_all_that_an_owner_has_lies_in_one_directory(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path) as pool:
        client = await pool.client(artifact(VALUE, broadcast_id=1), artifact(MODULE, file_name="m.py"), owner=MINE)
        await client.wanted()
        await client.send(*parts(VALUE), *parts(MODULE))
        await client.wanted()
        await client.end()
        [directory] = pool.owners()
        [broadcast, files] = Path(pool.provided.broadcasts["1"]), Path(pool.provided.files_directory)
        assert (broadcast.parent.name, files.parent.name) == ("stored", "sets")
        assert {broadcast.parents[1], files.parents[1]} == {directory}
        assert stat.S_IMODE(broadcast.parents[1].stat().st_mode) & 0o027 == 0


async def test_who_names_no_application_leaves_nothing(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path) as pool:
        for _ in range(2):
            assert await pool.give(MODULE, owner=Owner(tenant="team"))
        assert pool.owners() == []
        assert pool.used_bytes == 0


async def test_two_without_an_application_share_nothing(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path) as pool:
        first = await pool.client(artifact(VALUE, broadcast_id=1), owner=Owner(tenant="team"))
        await first.wanted()
        await first.send(*parts(VALUE))
        assert await first.wanted() == set()
        second = await pool.client(artifact(VALUE, broadcast_id=1), owner=Owner(tenant="team"))
        assert await second.wanted() == {DIGEST}
        second.leave()
        await first.end()


async def test_an_owner_whose_last_artifact_goes_keeps_its_directory(running_front: Running, tmp_path: Path) -> None:
    mebibyte = 1024 * 1024
    async with fixture(running_front, tmp_path, artifact_store_bytes=mebibyte) as pool:
        await pool.give(bytes(mebibyte), owner=MINE)
        [mine] = pool.owners()
        before = mine.stat().st_ino
        await pool.give(b"o" * mebibyte, owner=OTHERS["tenant"])
        assert len(pool.owners()) == 2
        # A worker that was bound to the directory can read artifacts that come back.
        await pool.give(bytes(mebibyte), owner=MINE)
        assert mine.stat().st_ino == before


HOSTILE = {
    "a path up": "../../../escaped",
    "an absolute path": "/escaped",
    "dots": "..",
    "a dot": ".",
    "nul": "app\0escaped",
    "separators": "a/b/c",
    "the trash": "trash",
    "what arrives": "arriving",
    "a megabyte": "a" * 2**20,
    "not ascii": "ä\u202e\ud7ff",
}


def neighbours(path: Path) -> set[Path]:
    return {*path.iterdir(), *path.parent.iterdir()}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
async def test_what_owners_call_themselves_never_becomes_a_path(
    running_front: Running, tmp_path: Path, text: str
) -> None:
    async with fixture(running_front, tmp_path) as pool:
        outside = neighbours(tmp_path)
        for owner in (
            Owner(application_id=text),
            Owner(application_id="app", session_id=text),
            Owner(application_id="app", tenant=text),
        ):
            assert await pool.give(MODULE, owner=owner)
            assert await pool.give(MODULE, owner=owner) == set()
        names = [directory.name for directory in pool.owners()]
        assert len(names) == 3
        assert all(len(name) == 64 and set(name) <= set("0123456789abcdef") for name in names)
        assert neighbours(tmp_path) == outside
