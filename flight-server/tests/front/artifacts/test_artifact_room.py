# SPDX-License-Identifier: Apache-2.0
"""Store room is taken only by bytes that arrive: announcing, dawdling or sending extra bytes reserves none."""

import asyncio
import hashlib
from pathlib import Path

import pytest
from artifact_clients import MODULE, VALUE, Fixture, artifact, fixture, part, parts
from flight_messages import keep_alive
from front_harness import Running
from hostile_archives import of_directories

from updraft.errors import ProtocolError
from updraft.service.audit import NO_RECORD
from updraft.service.exchange import MessageLimits
from updraft.service.identity import ANYBODY
from updraft.v1.exchange_pb2 import Artifact, ErrorKind, Owner
from updraft_server.front.artifacts.dialogue import ArtifactDialogue
from updraft_server.linux.hostile_trees import TreeSize, tree_size

MIB = 1024 * 1024


def owner(name: str, tenant: str = "") -> Owner:
    return Owner(application_id=name, tenant=tenant)


async def used(pool: Fixture, size_bytes: int) -> None:
    """Wait until at least this much of the store is in use."""
    for _ in range(6000):
        if pool.used_bytes >= size_bytes:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(pool.used_bytes)


async def test_an_announcement_takes_no_room(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path, artifact_store_bytes=4 * MIB) as pool:
        kept = bytes(2 * MIB)
        await pool.give(kept)
        before_bytes = pool.used_bytes
        for number in range(3):
            announced = Artifact(sha256=bytes([number]) * 32, size_bytes=4 * MIB, broadcast_id=1)
            await (await pool.client(announced, owner=owner(f"app-{number}"))).wanted()
        assert pool.used_bytes == before_bytes
        assert await pool.give(kept) == set()
        await pool.give(b"o" * MIB, owner=owner("other"))


async def test_what_has_arrived_takes_room_and_gives_it_back(running_front: Running, tmp_path: Path) -> None:
    data = bytes(MIB)
    async with fixture(running_front, tmp_path, artifact_store_bytes=MIB) as pool:
        sender = await pool.client(artifact(data, broadcast_id=1))
        await sender.wanted()
        await sender.send(parts(data, 512 * 1024)[0])
        await used(pool, MIB // 2)
        other = await pool.client(artifact(b"w" * MIB, broadcast_id=1), owner=owner("other"))
        assert (await other.refusal()).error.kind == ErrorKind.ERROR_KIND_POOL_FULL
        await sender.send(parts(data, 512 * 1024)[1])
        assert await sender.wanted() == set()
        await sender.end()
        assert pool.used_bytes == MIB
        await pool.give(b"w" * MIB, owner=owner("other"))


async def test_of_two_that_hold_half_one_goes_on(running_front: Running, tmp_path: Path) -> None:
    sent = {name: name.encode() * (3 * MIB) for name in "ab"}
    async with fixture(running_front, tmp_path, artifact_store_bytes=4 * MIB) as pool:
        clients = {name: await pool.client(artifact(sent[name], broadcast_id=1), owner=owner(name)) for name in sent}
        for client in clients.values():
            await client.wanted()
        first = {name: parts(data, MIB) for name, data in sent.items()}
        for name in sent:
            await clients[name].send(*first[name][:2])
        await used(pool, 4 * MIB)
        await clients["a"].send(first["a"][2])
        refusal = await clients["a"].refusal()
        assert refusal.error.kind == ErrorKind.ERROR_KIND_POOL_FULL
        await clients["b"].send(first["b"][2])
        assert await clients["b"].wanted() == set()
        await clients["b"].end()
        assert pool.used_bytes == 3 * MIB


async def test_who_fails_gives_its_room_back(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path) as pool:
        client = await pool.client(artifact(VALUE, broadcast_id=1))
        await client.wanted()
        await client.send(part(hashlib.sha256(VALUE).digest(), b"y" * len(VALUE)))
        await client.refusal()
        assert pool.used_bytes == 0
        assert pool.leftovers() == []


async def test_small_artifacts_take_more_room_than_bytes(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path, artifact_store_bytes=MIB) as pool:
        for number in range(40):
            await pool.give(bytes([number]))
        assert len({path.stat().st_ino for path in pool.leftovers()}) <= 16


async def test_who_uses_most_loses_first(running_front: Running, tmp_path: Path) -> None:
    old, *many = (bytes([number]) * MIB for number in range(6))
    async with fixture(running_front, tmp_path, artifact_store_bytes=4 * MIB) as pool:
        await pool.give(old, owner=owner("modest"))
        for data in many:
            await pool.give(data, owner=owner("greedy"))
        # The least recently used artifact of all, but its owner uses little.
        assert await pool.give(old, owner=owner("modest")) == set()
        assert await pool.give(many[0], owner=owner("greedy")) != set()


async def test_who_takes_many_names_is_one_tenant(running_front: Running, tmp_path: Path) -> None:
    old, *many = (bytes([number]) * MIB for number in range(6))
    async with fixture(running_front, tmp_path, artifact_store_bytes=4 * MIB) as pool:
        await pool.give(old, owner=owner("modest"))
        for number, data in enumerate(many):
            await pool.give(data, owner=owner(f"greedy-{number}", tenant="greedy"))
        assert await pool.give(old, owner=owner("modest")) == set()


async def test_sets_that_nobody_uses_are_few(
    running_front: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft_server.front.artifacts.store._MOST_IDLE_FILE_SETS", 3)
    async with fixture(running_front, tmp_path) as pool:
        for number in range(8):
            client = await pool.client(artifact(MODULE, file_name=f"m{number}.py"))
            if await client.wanted():
                await client.send(*parts(MODULE))
                await client.wanted()
            await client.end()
        assert len(pool.file_sets()) <= 3
        assert pool.file("m7.py").read_bytes() == MODULE


async def test_owners_that_are_away_are_few(
    running_front: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft_server.front.artifacts.store._MOST_OWNERS", 3)
    async with fixture(running_front, tmp_path) as pool:
        for number in range(8):
            await pool.give(MODULE, owner=owner(f"app-{number}"))
        assert len(pool.owners()) == 3
        assert await pool.give(MODULE, owner=owner("app-7")) == set()


async def test_names_of_artifacts_take_room_too(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path, artifact_store_bytes=16 * MIB) as pool:
        # Each set takes two fifths of the store.
        links = 16 * MIB // pool.volume.entry_bytes * 2 // 5
        for number in range(4):
            names = [artifact(MODULE, file_name=f"m{number}-{name}.py") for name in range(links)]
            client = await pool.client(*names)
            if await client.wanted():
                await client.send(*parts(MODULE))
                await client.wanted()
            await client.end()
            assert pool.used_bytes >= pool.volume.links_bytes(links)
        assert len(pool.file_sets()) == 2


def on_disk(directory: Path) -> TreeSize:
    """Return the size of everything in a store."""
    return tree_size(directory / "artifacts", most_files=100_000)


async def test_an_archive_takes_the_room_of_what_it_unpacks_to(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path) as pool:
        before = on_disk(tmp_path).files
        await pool.give_archive(of_directories(10, depth=40))
        assert on_disk(tmp_path).files - before >= 400
        assert pool.used_bytes >= 400 * 4096


async def test_an_archive_that_unpacks_to_more_than_the_store_is_refused(
    running_front: Running, tmp_path: Path
) -> None:
    async with fixture(running_front, tmp_path, artifact_store_bytes=4 * MIB) as pool:
        data = of_directories(30, depth=40)
        client = await pool.client(artifact(data, directory_name="a"))
        await client.wanted()
        await client.send(*parts(data, MIB))
        refusal = await client.refusal()
        assert refusal.error.kind == ErrorKind.ERROR_KIND_LIMIT
        assert "raise --artifact-store-bytes" in refusal.error.message
        assert f"of {len(data)} bytes takes" in refusal.error.message
        assert pool.used_bytes == 0
        await pool.give(MODULE)


async def test_archives_of_one_tenant_that_each_fit_never_take_more_than_the_store(
    running_front: Running, tmp_path: Path
) -> None:
    """Each archive takes a third of the store; archives of one owner arrive at the same time."""
    limit_bytes = 12 * MIB
    async with fixture(running_front, tmp_path, artifact_store_bytes=limit_bytes) as pool:
        directories = limit_bytes // pool.volume.entry_bytes // 3
        for name in ("a", "b", "c"):
            archives = [of_directories(directories // 40, depth=40) + bytes(512 * number) for number in range(2)]
            given = (pool.give_archive(data, owner=owner(name, tenant="one")) for data in archives)
            await asyncio.gather(*given, return_exceptions=True)
            assert 0 < pool.used_bytes <= limit_bytes
            assert on_disk(tmp_path).files * pool.volume.entry_bytes <= limit_bytes + MIB


class Dripping:
    """Client that sends one byte at a time, without end, and never pauses too long."""

    identity = ANYBODY
    record = NO_RECORD

    def __init__(self) -> None:
        self._offset = 0

    async def read(self) -> bytes | None:
        await asyncio.sleep(0.01)
        self._offset += 1
        return part(b"d" * 32, b"x", self._offset) if self._offset % 2 else keep_alive()

    async def write(self, message: bytes) -> None:
        raise NotImplementedError

    async def accept(self) -> None:
        raise NotImplementedError

    def header(self, name: str) -> str:
        raise NotImplementedError

    @property
    def remaining_seconds(self) -> float | None:
        return None


async def test_who_sends_byte_after_byte_is_given_up() -> None:
    client = Dripping()
    limits = MessageLimits("pool", MIB, 10)
    dialogue = ArtifactDialogue(client.read, client.write, limits, timeout_seconds=0.5)

    async def read_on() -> None:
        while True:
            await dialogue.part()

    with pytest.raises(ProtocolError, match="sent only"):
        await asyncio.wait_for(read_on(), 60)


async def test_a_request_that_is_being_sent_is_sent_before_the_client_is_told_of_its_lost_place() -> None:
    """gRPC refuses a second write while one is pending; the client would see that as an error of the service."""
    writing, flows, sent = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Held(Dripping):
        async def write(self, message: bytes) -> None:
            writing.set()
            await flows.wait()
            sent.set()

    client = Held()
    limits = MessageLimits("pool", 1000, 1)
    dialogue = ArtifactDialogue(client.read, client.write, limits, timeout_seconds=5)
    asking = asyncio.create_task(dialogue.ask([]))
    await writing.wait()
    asking.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not asking.done()
    flows.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert sent.is_set()
