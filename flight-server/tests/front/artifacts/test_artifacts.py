# SPDX-License-Identifier: Apache-2.0
"""Artifacts through a front with scripted workers: which are requested, sent, shared and kept."""

import hashlib
import tarfile
from pathlib import Path

import pytest
from artifact_clients import MODULE, VALUE, artifact, fixture, member, part, parts, tar_of
from flight_messages import (
    keep_alive,
)
from front_harness import Running

from updraft.v1.exchange_pb2 import (
    ErrorKind,
)


async def test_a_pool_asks_for_what_it_lacks_once_and_provides_it(running_front: Running, tmp_path: Path) -> None:
    needs = [artifact(VALUE, broadcast_id=3), artifact(MODULE, file_name="answers.py")]
    async with fixture(running_front, tmp_path) as pool:
        client = await pool.client(*needs)
        assert await client.wanted() == {need.sha256 for need in needs}
        await client.send(*parts(MODULE), *parts(VALUE))
        assert await client.wanted() == set()
        await client.end()
        assert pool.broadcast(3) == VALUE
        assert pool.file("answers.py").read_bytes() == MODULE

        again = await pool.client(*needs)
        assert await again.wanted() == set()
        await again.end()
        assert pool.recorder.assignments[0].files_directory == pool.provided.files_directory


async def test_keepalives_may_come_between_parts(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path) as pool:
        client = await pool.client(artifact(VALUE, broadcast_id=3))
        await client.wanted()
        for part in parts(VALUE):
            await client.send(keep_alive(), part, keep_alive())
        assert await client.wanted() == set()
        await client.end()
        assert pool.broadcast(3) == VALUE


async def test_an_exchange_without_artifacts_is_not_told_about_them(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path) as pool:
        client = await pool.client()
        await client.end()
        assert (pool.provided.files_directory, pool.provided.broadcasts) == ("", {})


async def test_the_same_name_with_other_bytes_is_another_directory(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path) as pool:
        for data in (MODULE, b"answer = 43\n"):
            client = await pool.client(artifact(data, file_name="answers.py"))
            await client.wanted()
            await client.send(*parts(data))
            await client.wanted()
            await client.end()
        assert pool.file("answers.py", 0).read_bytes() == MODULE
        assert pool.file("answers.py", 1).read_bytes() == b"answer = 43\n"


async def test_an_archive_is_unpacked_under_its_name(running_front: Running, tmp_path: Path) -> None:
    archive = tar_of(member("bin", type=tarfile.DIRTYPE, mode=0o755), member("bin/run", 5, mode=0o755), data=b"hello")
    async with fixture(running_front, tmp_path) as pool:
        client = await pool.client(artifact(archive, directory_name="env"))
        await client.wanted()
        await client.send(*parts(archive, 4096))
        await client.wanted()
        await client.end()
        run = pool.file("env/bin/run")
        assert run.read_bytes() == b"hello"
        assert run.stat().st_mode & 0o100


async def test_an_empty_artifact_is_one_empty_part(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path) as pool:
        client = await pool.client(artifact(b"", file_name="empty"))
        await client.wanted()
        await client.send(*parts(b""))
        assert await client.wanted() == set()
        await client.end()


async def test_a_client_that_never_sends_is_given_up(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path, artifact_timeout_seconds=0.2) as pool:
        client = await pool.client(artifact(VALUE, broadcast_id=1))
        await client.wanted()
        assert "within 0.2 seconds" in (await client.refusal()).error.message


async def test_one_exchange_waits_for_what_another_sends(running_front: Running, tmp_path: Path) -> None:
    need = artifact(VALUE, broadcast_id=1)
    async with fixture(running_front, tmp_path) as pool:
        sender = await pool.client(need)
        assert await sender.wanted() == {need.sha256}
        waiting = await pool.client(need, artifact(MODULE, file_name="own.py"))
        assert await waiting.wanted() == {hashlib.sha256(MODULE).digest()}
        await waiting.send(*parts(MODULE))
        await sender.send(*parts(VALUE))
        assert await waiting.wanted() == set()
        await waiting.end()
        assert await sender.wanted() == set()
        await sender.end()


@pytest.mark.parametrize("how", ["leaves", "lies"])
async def test_who_waits_for_a_client_that_fails_is_asked_itself(
    running_front: Running, tmp_path: Path, how: str
) -> None:
    need = artifact(VALUE, broadcast_id=1)
    async with fixture(running_front, tmp_path) as pool:
        sender = await pool.client(need)
        await sender.wanted()
        waiting = await pool.client(need)
        if how == "leaves":
            sender.leave()
        else:
            await sender.send(part(need.sha256, b"y" * len(VALUE)))
        assert await waiting.wanted() == {need.sha256}
        await waiting.send(*parts(VALUE))
        assert await waiting.wanted() == set()
        await waiting.end()


async def test_nobody_waits_for_a_client_that_has_stopped(running_front: Running, tmp_path: Path) -> None:
    need = artifact(VALUE, broadcast_id=1)
    async with fixture(running_front, tmp_path, artifact_timeout_seconds=3) as pool:
        stopped = await pool.client(need)
        await stopped.wanted()
        waiting = await pool.client(need)
        assert await waiting.wanted() == {need.sha256}
        await waiting.send(*parts(VALUE))
        assert await waiting.wanted() == set()
        await waiting.end()


MIB = 1024 * 1024


async def test_the_least_recently_used_artifact_makes_room(running_front: Running, tmp_path: Path) -> None:
    one, two, three = (bytes([number]) * (MIB // 2) for number in range(3))
    async with fixture(running_front, tmp_path, artifact_store_bytes=MIB) as pool:
        for data in (one, two, one, three):
            await pool.give(data)
        assert await pool.give(one) == set()
        assert await pool.give(two) != set()
        assert pool.file("data").read_bytes() == two
        assert not pool.file("data", 3).exists()


async def test_what_an_exchange_holds_stays_and_another_comes_again(running_front: Running, tmp_path: Path) -> None:
    held, other = bytes(MIB), b"o" * MIB
    async with fixture(running_front, tmp_path, artifact_store_bytes=MIB) as pool:
        client = await pool.client(artifact(held, broadcast_id=1))
        await client.wanted()
        await client.send(*parts(held, MIB))
        await client.wanted()
        refused = await (await pool.client(artifact(other, broadcast_id=1))).refusal()
        assert refused.error.kind == ErrorKind.ERROR_KIND_POOL_FULL
        await client.end()
        assert await pool.give(other) == {hashlib.sha256(other).digest()}


async def test_what_can_never_fit_is_refused_for_good(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path, artifact_store_bytes=MIB) as pool:
        refused = await (await pool.client(artifact(bytes(MIB + 1), broadcast_id=1))).refusal()
        assert refused.error.kind == ErrorKind.ERROR_KIND_LIMIT
        assert "--artifact-store-bytes" in refused.error.message
