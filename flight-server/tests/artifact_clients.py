# SPDX-License-Identifier: Apache-2.0
"""Clients that send artifacts, one message at a time, to a front whose workers record what they received."""

import asyncio
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from fake_pool import FakePool, FakeWorker
from flight_messages import (
    FlightData,
    all_replies,
    batch,
    command_request,
    echo_command,
    finish,
    reply_metadata,
)
from front_harness import Running, RunningFront

from updraft.protocol import TENANT_HEADER
from updraft.v1.exchange_pb2 import (
    Artifact,
    ArtifactPart,
    ErrorKind,
    ExchangeCommand,
    Owner,
    ReplyMetadata,
    RequestMetadata,
    SessionFunction,
    TaskIdentity,
)
from updraft_server.front.artifacts.room import Volume
from updraft_server.ipc.assignment import Assignment
from updraft_server.ipc.frames import FrameKind

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


def command(artifacts: Iterable[Artifact], owner: Owner | None = None, **fields: Any) -> ExchangeCommand:
    session = SessionFunction(python_version="3.11", spark_version="4.3.0", artifacts=artifacts, **fields)
    return echo_command(session=session, **({} if owner is None else {"task": TaskIdentity(owner=owner)}))


def part(digest: bytes, data: bytes, offset: int = 0) -> bytes:
    metadata = RequestMetadata(artifact=ArtifactPart(sha256=digest, offset=offset)).SerializeToString()
    return bytes(FlightData(app_metadata=metadata, data_body=data).SerializeToString())


def parts(data: bytes, size_bytes: int = 1024) -> list[bytes]:
    digest = hashlib.sha256(data).digest()
    return [part(digest, data[start : start + size_bytes], start) for start in range(0, len(data) or 1, size_bytes)]


class Recorder:
    """Worker script that echoes and records its assignments."""

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
        """Return the artifacts that the pool asks for next."""
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
        """Expect the exchange to fail; return the reply with the in-band error, whose code must match the status."""
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

    async def client(
        self, *artifacts: Artifact, owner: Owner | None = None, tenant: str = "", token: str = "", **fields: Any
    ) -> Client:
        """Open an exchange of this owner, or of an application of its own."""
        headers = {TENANT_HEADER: tenant, "authorization": token and f"Bearer {token}"}
        metadata = tuple((name, value) for name, value in headers.items() if value)
        call = self._front.exchange(timeout=60, metadata=metadata)
        await call.write(command_request(command(artifacts, owner, **fields)))
        return Client(call)

    async def give(self, data: bytes, *, owner: Owner | None = None, tenant: str = "", token: str = "") -> set[bytes]:
        """Run a whole exchange with one file and return the artifacts that the pool asked for."""
        client = await self.client(artifact(data, file_name="data"), owner=owner, tenant=tenant, token=token)
        wanted = await client.wanted()
        if wanted:
            await client.send(*parts(data, 1024 * 1024))
            assert await client.wanted() == set()
        await client.end()
        return wanted

    async def give_archive(self, data: bytes, *, owner: Owner | None = None) -> None:
        """Run a whole exchange with one archive."""
        client = await self.client(artifact(data, directory_name="data"), owner=owner)
        if await client.wanted():
            await client.send(*parts(data, 1024 * 1024))
            assert await client.wanted() == set()
        await client.end()

    @property
    def provided(self) -> Assignment:
        """Assignment of the last worker."""
        return self.recorder.assignments[-1]

    def broadcast(self, number: int) -> bytes:
        """Return the bytes of a broadcast as the last worker finds them."""
        return Path(self.provided.broadcasts[str(number)]).read_bytes()

    def file(self, name: str, exchange: int = -1) -> Path:
        """Return the path at which the worker of an exchange finds a file."""
        return Path(self.recorder.assignments[exchange].files_directory) / name

    def leftovers(self) -> list[Path]:
        """Return the files in the store, except those being deleted."""
        kept = [path for path in self._directory.iterdir() if path.name != "trash"]
        return [path for directory in kept for path in directory.rglob("*") if path.is_file()]

    def owners(self) -> list[Path]:
        """Return the directories of owners."""
        return [path for path in self._directory.iterdir() if path.name not in ("arriving", "trash")]

    def file_sets(self) -> list[Path]:
        """Return the directories of all sets of files."""
        return list(self._directory.glob("*/sets/*"))

    @property
    def volume(self) -> Volume:
        """Volume that holds the store."""
        return self._front.front.artifacts.volume

    @property
    def used_bytes(self) -> int:
        """Bytes used in the store."""
        return self._front.front.artifacts.used_bytes


@contextmanager
def artifact_timeout(seconds: float) -> Iterator[None]:
    """Set the time after which fronts assembled in the block give up on an upload."""
    with pytest.MonkeyPatch.context() as constants:
        for module in ("process", "exchange"):
            constants.setattr(f"updraft_server.front.{module}.ARTIFACT_TIMEOUT_SECONDS", seconds)
        yield


@asynccontextmanager
async def fixture(
    running_front: Running, tmp_path: Path, *, artifact_timeout_seconds: float = 5.0, **changes: Any
) -> AsyncIterator[Fixture]:
    recorder = Recorder()
    options = {"session_functions": "unsigned", **changes}
    with artifact_timeout(artifact_timeout_seconds):
        async with running_front(FakePool(2, recorder.script), **options) as front:
            yield Fixture(front, recorder, tmp_path / "artifacts")
