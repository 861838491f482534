# SPDX-License-Identifier: Apache-2.0
"""Before an exchange waits for a worker: what its function needs is in the store, sent by its client or by another's.

    ask for what nobody sends -> receive it -> wait for what others send -> ... -> say that nothing is wanted

An exchange waits for another's client only while that one sends; then it asks its own.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from updraft.errors import PoolUnavailableError, ProtocolError
from updraft_server.front.artifacts.arrival import Arrival
from updraft_server.front.artifacts.dialogue import ArtifactDialogue, ArtifactPart
from updraft_server.front.artifacts.file_sets import lay_out
from updraft_server.front.artifacts.needs import Needs
from updraft_server.front.artifacts.store import ArtifactStore, Held, StoredArtifact
from updraft_server.front.artifacts.threads import in_thread
from updraft_server.front.artifacts.unpackers import Unpackers


@dataclass(frozen=True, slots=True)
class CollectedArtifacts:
    """Where a worker finds what its function needs."""

    files_directory: str = ""
    """Empty without files."""
    broadcasts: Mapping[int, str] = field(default_factory=dict)
    """A path for each broadcast variable."""


class ArtifactCollector:
    """Provides exchanges with their artifacts."""

    def __init__(self, store: ArtifactStore, unpackers: Unpackers, *, timeout_seconds: float) -> None:
        self._store = store
        self._unpackers = unpackers
        self._timeout_seconds = timeout_seconds

    @asynccontextmanager
    async def collected(self, dialogue: ArtifactDialogue, needs: Needs) -> AsyncIterator[CollectedArtifacts]:
        """The artifacts, held for the time of the block; raises UpdraftError when they cannot be had."""
        if not needs.keys:
            yield CollectedArtifacts()
            return
        with self._store.holding(needs.keys) as held:
            yield await self._collect(dialogue, needs, held)

    async def _collect(self, dialogue: ArtifactDialogue, needs: Needs, held: Held) -> CollectedArtifacts:
        try:
            while missing := [artifact for artifact in held.values() if artifact.path is None]:
                wanted = [artifact for artifact in missing if not artifact.senders]
                if not wanted and not await self._progress(missing):
                    wanted = missing
                if wanted:
                    await self._receive(dialogue, wanted)
            artifacts = await self._lay_out(needs, held)
        except OSError as error:
            raise PoolUnavailableError(f"this pool cannot store an artifact: {error.strerror}") from error
        await dialogue.ask(())
        return artifacts

    async def _progress(self, artifacts: Sequence[StoredArtifact]) -> bool:
        """Wait for a sender to end; False when all of them have sent nothing for too long."""
        before_bytes = sum(artifact.arrived_bytes for artifact in artifacts)
        changes = [asyncio.ensure_future(artifact.change()) for artifact in artifacts]
        try:
            changed, _ = await asyncio.wait(changes, timeout=self._timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for change in changes:
                change.cancel()
        return bool(changed) or sum(artifact.arrived_bytes for artifact in artifacts) > before_bytes

    async def _receive(self, dialogue: ArtifactDialogue, artifacts: Iterable[StoredArtifact]) -> None:
        wanted = {artifact.key.sha256: artifact for artifact in artifacts}
        for artifact in wanted.values():
            artifact.began()
        try:
            await dialogue.ask(tuple(wanted))
            while wanted:
                part = await dialogue.part()
                if part.digest not in wanted:
                    raise ProtocolError(f"artifact {part.digest.hex()} arrived, which this pool did not request")
                await self._receive_one(dialogue, wanted[part.digest], part)
                wanted.pop(part.digest).ended()
        finally:
            for artifact in wanted.values():
                artifact.ended()

    async def _receive_one(self, dialogue: ArtifactDialogue, artifact: StoredArtifact, part: ArtifactPart) -> None:
        """One artifact, whose first part is here; parts of several are not mixed."""
        with Arrival(artifact.key, self._store.new_path()) as arrival:
            while True:
                await arrival.add(part.offset, part.data)
                artifact.arrived_bytes += len(part.data)
                if arrival.complete:
                    break
                part = await dialogue.part()
                if part.digest != artifact.key.sha256:
                    raise ProtocolError(
                        f"artifact {part.digest.hex()} came before the end of {artifact.key.sha256.hex()}"
                    )
            await arrival.check(self._unpackers)
            # Another exchange may have lost patience with this client and sent it too.
            if artifact.path is None:
                artifact.path = arrival.keep()

    async def _lay_out(self, needs: Needs, held: Held) -> CollectedArtifacts:
        paths = {key: artifact.path for key, artifact in held.items() if artifact.path is not None}
        broadcasts = {number: str(paths[key]) for number, key in needs.broadcasts.items()}
        if not needs.files:
            return CollectedArtifacts(broadcasts=broadcasts)
        path = self._store.file_set_path(needs.file_set, needs.files.values())
        files = {name: paths[key] for name, key in needs.files.items()}
        await in_thread(lay_out, path, self._store.new_path(), files)
        return CollectedArtifacts(str(path), broadcasts)
