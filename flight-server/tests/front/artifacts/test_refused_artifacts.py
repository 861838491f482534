# SPDX-License-Identifier: Apache-2.0
"""Artifacts and names that a front refuses without keeping anything of them."""

import hashlib
import tarfile
from pathlib import Path

import pytest
from artifact_clients import MODULE, VALUE, artifact, fixture, member, part, parts, tar_of
from flight_messages import (
    batch,
    finish,
)
from front_harness import Running

from updraft.v1.exchange_pb2 import (
    Artifact,
    ErrorKind,
)

DIGEST = hashlib.sha256(VALUE).digest()
OUTSIDE = tar_of(member("../outside", 1), data=b"x")
ABSOLUTE_LINK = tar_of(member("passwd", type=tarfile.SYMTYPE, linkname="/etc/passwd"))


@pytest.mark.parametrize(
    ("need", "messages", "words"),
    [
        (artifact(VALUE, broadcast_id=1), [part(DIGEST, b"y" * 3000)], "arrived with the digest"),
        (artifact(VALUE, broadcast_id=1), [part(DIGEST, VALUE + b"!")], "more than the 3000 bytes"),
        (artifact(VALUE, broadcast_id=1), [part(DIGEST, VALUE[:9]), part(DIGEST, b"", 10)], "continues at byte 10"),
        (artifact(VALUE, broadcast_id=1), [part(b"?" * 32, VALUE)], "did not request"),
        (artifact(VALUE, broadcast_id=1), [part(DIGEST, VALUE[:9]), part(b"?" * 32, b"")], "before the end of"),
        (artifact(VALUE, broadcast_id=1), [batch(1)], "before the artifact that the pool requested"),
        (artifact(VALUE, broadcast_id=1), [finish(0)], "before the artifact that the pool requested"),
        (artifact(b"no tar", directory_name="d"), parts(b"no tar"), "not an archive"),
        (artifact(OUTSIDE, directory_name="d"), parts(OUTSIDE, 2**20), "outside"),
        (artifact(ABSOLUTE_LINK, directory_name="d"), parts(ABSOLUTE_LINK, 2**20), "absolute path"),
    ],
)
async def test_what_is_not_what_was_announced_is_refused_and_leaves_nothing(
    running_front: Running, tmp_path: Path, need: Artifact, messages: list[bytes], words: str
) -> None:
    async with fixture(running_front, tmp_path) as pool:
        client = await pool.client(need)
        await client.wanted()
        await client.send(*messages)
        error = (await client.refusal()).error
        assert error.kind == ErrorKind.ERROR_KIND_PROTOCOL
        assert words in error.message
        assert pool.leftovers() == []
        assert pool.recorder.assignments == []


async def test_an_archive_may_not_grow_when_it_is_unpacked(running_front: Running, tmp_path: Path) -> None:
    header = member("huge", 2**40)
    bomb = header.tobuf() + bytes(1024)
    async with fixture(running_front, tmp_path) as pool:
        client = await pool.client(artifact(bomb, directory_name="d"))
        await client.wanted()
        await client.send(*parts(bomb, 2**20))
        assert "unpacks to more bytes" in (await client.refusal()).error.message
        assert pool.leftovers() == []


@pytest.mark.parametrize("name", ["", ".", "..", "../up", "/etc/passwd", "a/b", "nul\0", "n" * 256])
async def test_a_name_that_is_a_path_is_refused(running_front: Running, tmp_path: Path, name: str) -> None:
    async with fixture(running_front, tmp_path) as pool:
        for refused in (
            await pool.client(artifact(MODULE, file_name=name)),
            await pool.client(artifact(MODULE, directory_name=name)),
            await pool.client(artifact(MODULE, file_name="fine.zip"), python_includes=[name]),
        ):
            assert (await refused.refusal()).error.kind == ErrorKind.ERROR_KIND_PROTOCOL


@pytest.mark.parametrize(
    "needs",
    [
        [artifact(MODULE)],
        [Artifact(sha256=b"short", broadcast_id=1)],
        [Artifact(sha256=DIGEST, size_bytes=-1, broadcast_id=1)],
        [artifact(MODULE, file_name="a"), artifact(VALUE, file_name="a")],
        [artifact(MODULE, broadcast_id=1), artifact(VALUE, broadcast_id=1)],
        [artifact(MODULE, file_name="a"), artifact(MODULE, directory_name="b")],
    ],
)
async def test_a_list_that_contradicts_itself_is_refused(
    running_front: Running, tmp_path: Path, needs: list[Artifact]
) -> None:
    async with fixture(running_front, tmp_path) as pool:
        assert (await (await pool.client(*needs)).refusal()).error.kind == ErrorKind.ERROR_KIND_PROTOCOL


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "PYTHONPATH", "SPARK_HOME", "UPDRAFT_LISTEN", "a-b", ""])
async def test_variables_that_are_not_the_users_to_set_are_refused(
    running_front: Running, tmp_path: Path, name: str
) -> None:
    async with fixture(running_front, tmp_path) as pool:
        refused = await (await pool.client(user_environment={name: "x"})).refusal()
        assert refused.error.kind == ErrorKind.ERROR_KIND_FUNCTION_REFUSED
