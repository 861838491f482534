# SPDX-License-Identifier: Apache-2.0
"""Unpacking of archives in separate processes (`updraft_server.unpacker`), because archives are untrusted.

An unpacker receives the archive as an open file, an empty working directory and a socket. It requests disk space before
it writes, and reports a verdict at the end. Unless the verdict is good, the front removes everything that the unpacker
has written.
"""

import asyncio
import math
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

import updraft_server
from updraft.errors import PoolUnavailableError, ProtocolError
from updraft.service.child import describe_exit
from updraft_server.front.artifacts.room import Volume
from updraft_server.front.artifacts.threads import in_thread, remove
from updraft_server.ipc import unpacking
from updraft_server.linux.hostile_trees import TreeSize

_log = structlog.get_logger(__name__)

_PACKAGES = str(Path(updraft_server.__file__).parent.parent)
# An interpreter without site-packages starts in a fraction of the time and runs no package's .pth file.
_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from updraft_server.unpacker.process import main; main()"
_COMMAND = (sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _PROGRAM, _PACKAGES)

# Number of unpackers that may run at once. Together they may use this many times UnpackLimits.memory_bytes.
_AT_ONCE = 2


class TreeRoom(Protocol):
    """Disk space for the tree that an archive unpacks to."""

    volume: Volume

    async def unpack_to(self, tree_bytes: int) -> None:
        """Reserve space for this many bytes of tree in total; raise UpdraftError if there is too little."""

    def measure(self, tree: Path) -> TreeSize:
        """Return the size of an unpacked tree on disk; blocks."""

    def settle(self, tree: TreeSize) -> None:
        """Correct the space to the size of the tree, whose archive was removed; raise what `unpack_to` raises."""


@dataclass(frozen=True, slots=True)
class UnpackLimits:
    """Limits of an archive and its unpacker, well above what a large Python environment needs."""

    members: int = 250_000
    header_bytes: int = 1024 * 1024
    """Limit of the bytes of headers before the data of one member."""
    name_bytes: int = 4096
    names_bytes: int = 64 * 1024 * 1024
    depth: int = 128
    memory_bytes: int = 256 * 1024 * 1024
    base_seconds: float = 60
    least_bytes_per_second: int = 1024 * 1024
    """Lowest pace. An archive may take `base_seconds` plus the time for its bytes at this pace.

    The limit applies to wall time and to CPU time.
    """

    def seconds(self, size_bytes: int) -> float:
        """Return the time limit for an archive of this size."""
        return self.base_seconds + size_bytes / self.least_bytes_per_second

    def bounds(self, size_bytes: int, volume: Volume) -> unpacking.UnpackBounds:
        """Return the bounds for an archive of this size on this volume. It may not unpack to more than its own size."""
        return unpacking.UnpackBounds(
            total_bytes=size_bytes,
            members=self.members,
            header_bytes=self.header_bytes,
            name_bytes=self.name_bytes,
            names_bytes=self.names_bytes,
            depth=self.depth,
            memory_bytes=self.memory_bytes,
            cpu_seconds=math.ceil(self.seconds(size_bytes)),
            block_bytes=volume.block_bytes,
            entry_bytes=volume.entry_bytes,
            room_bytes=volume.file_bytes(size_bytes),
        )


class Unpackers:
    """Unpacker processes, one for each archive. Only a few run at a time."""

    def __init__(self, limits: UnpackLimits | None = None) -> None:
        self._limits = limits or UnpackLimits()
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def unpack(self, name: str, archive: Path, directory: Path, room: TreeRoom) -> None:
        """Unpack an archive into a new directory, and remove the directory again on failure.

        Raises ProtocolError if the unpacker refuses the archive, PoolUnavailableError if the unpacker dies or exceeds
        its time limit, errors of `room`, and OSError. `name` names the artifact in errors.
        """
        async with self._places:
            await in_thread(directory.mkdir)
            whole = False
            try:
                await self._unpack(name, archive, directory, room)
                whole = True
            finally:
                if not whole:
                    await in_thread(remove, directory)

    async def _unpack(self, name: str, archive: Path, directory: Path, room: TreeRoom) -> None:
        size_bytes = _size_bytes(archive)
        limit_seconds = self._limits.seconds(size_bytes)
        bounds = self._limits.bounds(size_bytes, room.volume)
        await room.unpack_to(bounds.room_bytes)
        process, connection = _start(archive, directory, bounds)
        try:
            async with asyncio.timeout(limit_seconds):
                encoded = await _output(connection, room, bounds.room_bytes)
                # The unpacker has closed its only connection, so it exits now unless hostile code has taken it over.
                await asyncio.to_thread(process.wait)
        except TimeoutError:
            raise PoolUnavailableError(f"{name} was not unpacked within {limit_seconds:g} seconds") from None
        finally:
            process.kill()
            await in_thread(process.wait)
        _judge(name, encoded, process.returncode)


def _size_bytes(archive: Path) -> int:
    return archive.stat().st_size


def _start(
    archive: Path, directory: Path, bounds: unpacking.UnpackBounds
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start an unpacker with vfork, which blocks the loop until the exec but runs no fork handler of gRPC or uvloop."""
    connection, others_end = socket.socketpair()
    try:
        with archive.open("rb") as file, others_end:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own module
                (*_COMMAND, bounds.encode(), str(os.getpid())),
                stdin=file,
                stdout=others_end.fileno(),
                stderr=subprocess.DEVNULL,
                cwd=directory,
                env={},
                close_fds=True,
                start_new_session=True,
            )
    except BaseException:
        connection.close()
        raise
    return process, connection


async def _output(connection: socket.socket, room: TreeRoom, granted_bytes: int) -> bytes:
    """Grant the space that the process requests; return its verdict, cut off if it is too long."""
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=unpacking.MAX_VERDICT_BYTES)
    try:
        while (request := unpacking.RoomRequest.decode(encoded := await reader.readline())) is not None:
            if request.room_bytes <= granted_bytes:
                return b""
            granted_bytes = request.room_bytes
            await room.unpack_to(granted_bytes)
            writer.write(unpacking.ROOM_GRANTED)
        while len(encoded) <= unpacking.MAX_VERDICT_BYTES and (data := await reader.read(unpacking.MAX_VERDICT_BYTES)):
            encoded += data
        return encoded
    except (ValueError, ConnectionError):
        # The unpacker has ended or has sent garbage: return an empty verdict.
        return b""
    finally:
        writer.close()


def _judge(name: str, encoded: bytes, status: int) -> None:
    if status == -signal.SIGXCPU:
        raise ProtocolError(f"{name} takes too much CPU time to unpack")
    try:
        verdict = unpacking.UnpackVerdict.decode(encoded)
    except ValueError:
        ending = describe_exit(status)
        _log.warning("an unpacker gave no verdict", artifact=name, ending=ending)
        raise PoolUnavailableError(f"{name} was not unpacked: its unpacker {ending}") from None
    if verdict.outcome is unpacking.UnpackOutcome.REFUSED:
        raise ProtocolError(f"{name} {verdict.reason}")
    if verdict.outcome is unpacking.UnpackOutcome.FAULT:
        raise OSError(verdict.error_number, os.strerror(verdict.error_number))
