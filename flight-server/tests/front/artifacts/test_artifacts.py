# SPDX-License-Identifier: Apache-2.0
"""The dialogue about artifacts through a front whose workers are scripts: what is asked for, sent, refused, shared."""

import asyncio
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from flight_messages import (
    FlightData,
    all_replies,
    batch,
    command_request,
    echo_command,
    finish,
    keep_alive,
    reply_metadata,
)
from front_harness import Running, RunningFront

from updraft.v1.exchange_pb2 import (
    Artifact,
    ArtifactPart,
    ErrorKind,
    ExchangeCommand,
    ReplyMetadata,
    RequestMetadata,
    SessionFunction,
)
from updraft_server.ipc.assignment import Assignment
from updraft_server.ipc.frames import FrameKind
from updraft_server.pool.testing import FakePool, FakeWorker

MODULE = b"answer = 42\n"
VALUE = b"x" * 3000


def artifact(data: bytes, **role: Any) -> Artifact:
    return Artifact(sha256=hashlib.sha256(data).digest(), size_bytes=len(data), **role)


def tar_of(*members: tarfile.TarInfo, data: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return buffer.getvalue()


def member(name: str, size_bytes: int = 0, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size_bytes
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def command(artifacts: Iterable[Artifact], **fields: Any) -> ExchangeCommand:
    session = SessionFunction(python_version="3.11", spark_version="4.3.0", artifacts=artifacts, **fields)
    return echo_command(session=session)


def part(digest: bytes, data: bytes, offset: int = 0) -> bytes:
    metadata = RequestMetadata(artifact=ArtifactPart(sha256=digest, offset=offset)).SerializeToString()
    return bytes(FlightData(app_metadata=metadata, data_body=data).SerializeToString())


def parts(data: bytes, size_bytes: int = 1024) -> list[bytes]:
    digest = hashlib.sha256(data).digest()
    return [part(digest, data[start : start + size_bytes], start) for start in range(0, len(data) or 1, size_bytes)]


class Recorder:
    """A script that echoes and remembers what it was provided with."""

    def __init__(self) -> None:
        self.assignments: list[Assignment] = []

    async def script(self, worker: FakeWorker) -> None:
        command = await worker.receive()
        self.assignments.append(Assignment.decode(bytes(command.app_metadata)))
        while (await worker.receive()).kind is FrameKind.BATCH:
            pass
        await worker.send(FrameKind.DONE)


class Client:
    """One exchange, message by message."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def wanted(self) -> set[bytes]:
        """What the pool asks for next."""
        reply = reply_metadata(await asyncio.wait_for(self._call.read(), 60))
        assert reply.WhichOneof("event") == "artifacts_wanted", reply
        return set(reply.artifacts_wanted.sha256)

    async def send(self, *messages: bytes) -> None:
        for message in messages:
            await self._call.write(message)

    async def end(self) -> None:
        """Send a batch and finish; the exchange must succeed."""
        await self.send(batch(1), finish(1))
        await self._call.done_writing()
        _, error = await asyncio.wait_for(all_replies(self._call), 60)
        assert error is None, error

    async def refusal(self) -> ReplyMetadata:
        """The exchange must fail; the in-band error, whose code the status has too."""
        replies, error = await asyncio.wait_for(all_replies(self._call), 60)
        assert error is not None
        last = reply_metadata(replies[-1])
        if last.error.kind == ErrorKind.ERROR_KIND_PROTOCOL:
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        return last

    def leave(self) -> None:
        self._call.cancel()


class Fixture:
    def __init__(self, front: RunningFront, recorder: Recorder, directory: Path) -> None:
        self._front = front
        self.recorder = recorder
        self._directory = directory

    async def client(self, *artifacts: Artifact, **fields: Any) -> Client:
        call = self._front.exchange(timeout=60)
        await call.write(command_request(command(artifacts, **fields)))
        return Client(call)

    @property
    def provided(self) -> Assignment:
        """What the last worker was provided with."""
        return self.recorder.assignments[-1]

    def broadcast(self, number: int) -> bytes:
        """The bytes that the last worker finds."""
        return Path(self.provided.broadcasts[str(number)]).read_bytes()

    def file(self, name: str, exchange: int = -1) -> Path:
        """Where the worker of an exchange finds a file."""
        return Path(self.recorder.assignments[exchange].files_directory) / name

    def leftovers(self) -> list[Path]:
        """What lies in the store."""
        return [path for path in (self._directory / "artifacts").rglob("*") if path.is_file()]


@asynccontextmanager
async def fixture(running_front: Running, tmp_path: Path, **changes: Any) -> AsyncIterator[Fixture]:
    recorder = Recorder()
    options = {"allow_session_functions": True, "artifact_timeout_seconds": 5, **changes}
    async with running_front(FakePool(2, recorder.script), **options) as front:
        yield Fixture(front, recorder, tmp_path / "artifacts")


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


DIGEST = hashlib.sha256(VALUE).digest()
OUTSIDE = tar_of(member("../outside", 1), data=b"x")
ABSOLUTE_LINK = tar_of(member("passwd", type=tarfile.SYMTYPE, linkname="/etc/passwd"))


@pytest.mark.parametrize(
    ("need", "messages", "words"),
    [
        (artifact(VALUE, broadcast_id=1), [part(DIGEST, b"y" * 3000)], "arrived with the digest"),
        (artifact(VALUE, broadcast_id=1), [part(DIGEST, VALUE + b"!")], "more than the 3000 bytes"),
        (artifact(VALUE, broadcast_id=1), [part(DIGEST, VALUE[:9]), part(DIGEST, b"", 10)], "continues at byte 10"),
        (artifact(VALUE, broadcast_id=1), [part(b"?" * 32, VALUE)], "has not asked for"),
        (artifact(VALUE, broadcast_id=1), [part(DIGEST, VALUE[:9]), part(b"?" * 32, b"")], "before the end of"),
        (artifact(VALUE, broadcast_id=1), [batch(1)], "before what the pool has asked for"),
        (artifact(VALUE, broadcast_id=1), [finish(0)], "before what the pool has asked for"),
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


async def give(pool: Fixture, data: bytes) -> set[bytes]:
    """A whole exchange with one artifact; what the pool asked for."""
    client = await pool.client(artifact(data, file_name="data"))
    wanted = await client.wanted()
    if wanted:
        await client.send(*parts(data, MIB))
        assert await client.wanted() == set()
    await client.end()
    return wanted


async def test_the_least_recently_used_artifact_makes_room(running_front: Running, tmp_path: Path) -> None:
    one, two, three = (bytes([number]) * (MIB // 2) for number in range(3))
    async with fixture(running_front, tmp_path, artifact_store_bytes=MIB) as pool:
        for data in (one, two, one, three):
            await give(pool, data)
        assert await give(pool, one) == set()
        assert await give(pool, two) != set()
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
        assert await give(pool, other) == {hashlib.sha256(other).digest()}


async def test_what_can_never_fit_is_refused_for_good(running_front: Running, tmp_path: Path) -> None:
    async with fixture(running_front, tmp_path, artifact_store_bytes=MIB) as pool:
        refused = await (await pool.client(artifact(bytes(MIB + 1), broadcast_id=1))).refusal()
        assert refused.error.kind == ErrorKind.ERROR_KIND_LIMIT
        assert "--artifact-store-bytes" in refused.error.message


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "PYTHONPATH", "SPARK_HOME", "UPDRAFT_LISTEN", "a-b", ""])
async def test_variables_that_are_not_the_users_to_set_are_refused(
    running_front: Running, tmp_path: Path, name: str
) -> None:
    async with fixture(running_front, tmp_path) as pool:
        refused = await (await pool.client(user_environment={name: "x"})).refusal()
        assert refused.error.kind == ErrorKind.ERROR_KIND_FUNCTION_REFUSED
