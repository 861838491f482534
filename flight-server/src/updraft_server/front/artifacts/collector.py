# SPDX-License-Identifier: Apache-2.0
"""Collector of the artifacts that a function needs. It runs before the exchange waits for a worker.

Artifacts come from the exchange's own client or from another client of the same owner:

    request artifacts that no client is sending -> receive them -> wait for other clients -> ... -> report completion

An exchange waits for another client only while that client keeps sending. If the other client stops, the exchange asks
its own client.

Files are laid out in a directory, under the names that the session gives them, like Spark's distributed files. The
front never changes the files of such a directory. If the bytes under a name change, the front lays out a new directory,
because Python caches modules by path. If a worker managed to change a directory, the front lays the files out again.
"""

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import structlog

from updraft.errors import PoolUnavailableError, ProtocolError
from updraft_server.front.artifacts.arrival import Arrival
from updraft_server.front.artifacts.dialogue import ArtifactDialogue, ArtifactPart
from updraft_server.front.artifacts.needs import Needs
from updraft_server.front.artifacts.originals import Original
from updraft_server.front.artifacts.store import ArtifactStore, Held
from updraft_server.front.artifacts.stored import DIRECTORY_MODE, StoredArtifact
from updraft_server.front.artifacts.threads import in_thread, remove
from updraft_server.front.artifacts.unpackers import Unpackers
from updraft_server.pool.leases import Owner

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CollectedArtifacts:
    """Paths at which a worker finds the artifacts of its function."""

    directory: str = ""
    """Directory of the owner, which contains the paths below.

    Empty for registered functions, and for an exchange that has neither artifacts nor an application id.
    """
    files_directory: str = ""
    """Directory with the function's files; empty without files."""
    broadcasts: Mapping[int, str] = field(default_factory=dict)
    """Path of each broadcast variable, by its id."""


class ArtifactCollector:
    """Collector of the artifacts that exchanges need."""

    def __init__(self, store: ArtifactStore, unpackers: Unpackers, *, timeout_seconds: float) -> None:
        self._store = store
        self._unpackers = unpackers
        self._timeout_seconds = timeout_seconds

    @asynccontextmanager
    async def collected(
        self, dialogue: ArtifactDialogue, owner: Owner, needs: Needs, *, share: str
    ) -> AsyncIterator[CollectedArtifacts]:
        """Yield the artifacts, hold them for the duration of the block and count them against the tenant `share`.

        The store creates a directory for an owner with an application id even if there are no artifacts: the worker is
        bound to that directory now and may need artifacts in a later exchange. Raises UpdraftError.
        """
        if not needs.keys and not owner.application_id:
            yield CollectedArtifacts()
            return
        with self._store.holding(owner, needs.keys, share) as held:
            yield await self._collect(dialogue, needs, held) if needs.keys else CollectedArtifacts(held.directory)

    async def _collect(self, dialogue: ArtifactDialogue, needs: Needs, held: Held) -> CollectedArtifacts:
        try:
            await self._check_again(held)
            while missing := [artifact for artifact in held.artifacts.values() if artifact.path is None]:
                wanted = [artifact for artifact in missing if not artifact.senders]
                if not wanted and not await self._progress(missing):
                    wanted = missing
                if wanted:
                    await self._receive(dialogue, held, wanted)
            artifacts = await self._lay_out(needs, held)
        except OSError as error:
            raise PoolUnavailableError(f"this pool cannot store an artifact: {error.strerror}") from error
        await dialogue.ask(())
        return artifacts

    async def _check_again(self, held: Held) -> None:
        """Discard stored artifacts that have changed on disk, so that the front requests them again."""
        there = {
            artifact: (artifact.path, artifact.original)
            for artifact in held.artifacts.values()
            if artifact.original is not None
        }
        changed = await in_thread(_changed, {artifact: original for artifact, (_, original) in there.items()})
        for artifact in changed:
            # Another exchange may have noticed the change first and discarded the artifact.
            if artifact.path == there[artifact][0]:
                _log.warning("an artifact was changed on the pool's disk", artifact=artifact.key.sha256.hex())
                self._store.discard(held.owned, artifact)

    async def _progress(self, artifacts: Sequence[StoredArtifact]) -> bool:
        """Wait for a sender to finish; return False if no sender makes progress within the timeout."""
        before_bytes = sum(artifact.arrived_bytes for artifact in artifacts)
        changes = [asyncio.ensure_future(artifact.change()) for artifact in artifacts]
        try:
            changed, _ = await asyncio.wait(changes, timeout=self._timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for change in changes:
                change.cancel()
        return bool(changed) or sum(artifact.arrived_bytes for artifact in artifacts) > before_bytes

    async def _receive(self, dialogue: ArtifactDialogue, held: Held, artifacts: Iterable[StoredArtifact]) -> None:
        wanted = {artifact.key.sha256: artifact for artifact in artifacts}
        for artifact in wanted.values():
            artifact.began()
        try:
            await dialogue.ask(tuple(wanted))
            while wanted:
                part = await dialogue.part()
                if part.digest not in wanted:
                    raise ProtocolError(f"artifact {part.digest.hex()} arrived, which this pool did not request")
                await self._receive_one(dialogue, held, wanted[part.digest], part)
                wanted.pop(part.digest).ended()
        finally:
            for artifact in wanted.values():
                artifact.ended()

    async def _receive_one(
        self, dialogue: ArtifactDialogue, held: Held, artifact: StoredArtifact, part: ArtifactPart
    ) -> None:
        """Receive the artifact that `part` begins; parts of different artifacts may not be interleaved."""
        async with AsyncExitStack() as stack:
            room = stack.enter_context(self._store.arriving(held, artifact))
            arrival = await stack.enter_async_context(Arrival(artifact.key, self._store.arriving_path()))
            while True:
                arrival.check_next(part.offset, len(part.data))
                room.grow_to(part.offset + len(part.data))
                await room.vacated()
                await arrival.add(part.offset, part.data)
                artifact.arrived_bytes += len(part.data)
                if arrival.complete:
                    break
                part = await dialogue.part()
                if part.digest != artifact.key.sha256:
                    raise ProtocolError(
                        f"artifact {part.digest.hex()} came before the end of {artifact.key.sha256.hex()}"
                    )
            await arrival.check(self._unpackers, room)
            path = self._store.stored_path(held)
            original = await arrival.move(path)
            # Another exchange may have stopped waiting for this client and stored the artifact from its own client.
            if artifact.path is None:
                room.keep(path, original)
                arrival.keep()

    async def _lay_out(self, needs: Needs, held: Held) -> CollectedArtifacts:
        there = {
            key: SetFile(artifact.path, artifact.original)
            for key, artifact in held.artifacts.items()
            if artifact.path is not None and artifact.original is not None
        }
        broadcasts = {number: str(there[key].path) for number, key in needs.broadcasts.items()}
        if not needs.files:
            return CollectedArtifacts(held.directory, broadcasts=broadcasts)
        file_set = self._store.file_set(held, needs.file_set, needs.files.values())
        files = {name: there[key] for name, key in needs.files.items()}
        await in_thread(lay_out, file_set.path, self._store.arriving_path(), files)
        return CollectedArtifacts(held.directory, str(file_set.path), broadcasts)


def _changed(originals: Mapping[StoredArtifact, Original]) -> list[StoredArtifact]:
    return [artifact for artifact, original in originals.items() if not original.still()]


_CACHE = "__pycache__"


class SetFile(NamedTuple):
    """File or unpacked archive in a set."""

    path: Path
    original: Original


def lay_out(path: Path, building: Path, files: Mapping[str, SetFile]) -> None:
    """Lay out the files in the directory `path`, atomically; leave an intact existing directory as it is."""
    wrong = building.with_suffix(".wrong")
    try:
        if _is_laid_out(path, files):
            return
        if path.exists():
            path.rename(wrong)
        building.mkdir(mode=DIRECTORY_MODE)
        for name, file in files.items():
            if file.path.is_dir():
                (building / name).symlink_to(file.path)
            else:
                file.original.linked(functools.partial(os.link, file.path, building / name))
        building.rename(path)
    except OSError:
        # Another exchange of the session may have laid out the directory first.
        if not _is_laid_out(path, files):
            raise
    finally:
        remove(building, wrong)


def _is_laid_out(path: Path, files: Mapping[str, SetFile]) -> bool:
    """Remove Python's bytecode cache from the directory. Return whether the directory then has exactly these files."""
    try:
        names = {entry.name for entry in path.iterdir()}
        if _CACHE in names and _CACHE not in files:
            remove(path / _CACHE)
            names.remove(_CACHE)
        return names == files.keys() and all(_shows(path / name, file.path) for name, file in files.items())
    except FileNotFoundError:
        return False


def _shows(link: Path, target: Path) -> bool:
    if target.is_dir():
        return link.is_symlink() and link.readlink() == target
    return not link.is_symlink() and link.samefile(target)
