# SPDX-License-Identifier: Apache-2.0
"""Store of artifacts on disk, per owner and within one limit. To free space, it evicts artifacts not held by exchanges.

    <directory>/<owner>/stored   checked artifacts of the owner
    <directory>/<owner>/sets     file sets of the owner: links to artifacts
    <directory>/arriving         unchecked artifacts of all owners
    <directory>/trash            files that are being deleted

This is policy and bookkeeping, used from one event loop; `updraft_server.front.artifacts.collector` fills the store.
Owners share nothing, not even equal bytes: a digest refers only to artifacts that clients of the same owner have sent.
Therefore the pool's requests for artifacts reveal nothing about other owners. An announced artifact uses no space. The
front reserves space as the artifact's bytes arrive, and for the tree of an archive before the tree is written. Space is
measured on the disk, in blocks and inodes (`updraft_server.front.artifacts.room`).
"""

import asyncio
import contextlib
import hashlib
import hmac
import itertools
import json
import secrets
import shutil
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from updraft.errors import LimitError, PoolFullError, PoolUnavailableError
from updraft.service.metrics import Metrics
from updraft.service.tenants import Caps
from updraft_server.front.artifacts.needs import ArtifactKey, Form
from updraft_server.front.artifacts.room import Room, Volume
from updraft_server.front.artifacts.stored import DIRECTORY_MODE, FileSet, OwnedArtifacts, StoredArtifact
from updraft_server.front.artifacts.tenant_room import TenantRooms
from updraft_server.front.artifacts.threads import remove
from updraft_server.pool.leases import Owner

# Honest sessions need fewer sets at once. Without this bound, any number of directories could link to one artifact.
_MOST_IDLE_FILE_SETS = 256
# Each owner uses a few directories and some of the front's memory.
_MOST_OWNERS = 4096


@dataclass(slots=True)
class Held:
    """Artifacts and file set that one exchange holds in the store."""

    owned: OwnedArtifacts
    artifacts: Mapping[ArtifactKey, StoredArtifact]
    file_set: FileSet | None = None

    @property
    def directory(self) -> str:
        """Path of the owner's directory."""
        return str(self.owned.directory)


class ArtifactStore:
    """Artifacts of a pool, in a directory that the store owns and empties when it starts."""

    def __init__(
        self, directory: Path, *, limit_bytes: int, retry_after_milliseconds: int, caps: Caps | None = None
    ) -> None:
        self._directory = directory
        self._arriving_path = directory / "arriving"
        self._trash_path = directory / "trash"
        self._limit_bytes = limit_bytes
        self._retry_after_milliseconds = retry_after_milliseconds
        self._owned: OrderedDict[bytes, OwnedArtifacts] = OrderedDict()
        self._tenants = TenantRooms(limit_bytes, caps or Caps(), retry_after_milliseconds)
        self._idle_sets: OrderedDict[tuple[bytes, str], OwnedArtifacts] = OrderedDict()
        """File sets that no exchange holds, the least recently used first."""
        self._names = itertools.count()
        # Directories of owners are named with this secret: an owner always has the same directory, and no function can
        # guess the directory of another owner.
        self._secret = secrets.token_bytes(32)
        self._deletions: set[asyncio.Future[None]] = set()
        self._trash_bytes = 0
        """Space that was given back but is still in use on the disk."""
        self.used_bytes = 0
        self._idle_bytes = 0
        shutil.rmtree(directory, ignore_errors=True)
        for path in (directory, self._arriving_path, self._trash_path):
            path.mkdir(mode=DIRECTORY_MODE, parents=True)
        self.volume = Volume.of(directory)

    def show_in(self, metrics: Metrics) -> None:
        """Add a gauge of the space in use."""
        metrics.watch(
            "updraft_artifact_store_bytes",
            "Room that broadcast variables, files and unpacked archives take, in blocks or inodes.",
            lambda: self.used_bytes,
        )

    def arriving_path(self) -> Path:
        """Return an unused path for an artifact that is arriving."""
        return self._arriving_path / str(next(self._names))

    def stored_path(self, held: Held) -> Path:
        """Return an unused path for an artifact of this owner."""
        return held.owned.stored_path / str(next(self._names))

    @contextlib.contextmanager
    def holding(self, owner: Owner, keys: frozenset[ArtifactKey], share: str = "") -> Iterator[Held]:
        """Hold these artifacts of the owner, stored or not, for the duration of the block.

        They count against the tenant `share`, or against the owner's tenant if `share` is empty. Raises PoolFullError,
        or LimitError for artifacts that can never fit. At the end of the block, the store forgets artifacts that have
        not arrived, and marks all other artifacts as most recently used. If the owner has no application id, the store
        removes all artifacts of the owner.
        """
        share = share or owner.tenant
        self._check_announced(share, self._owned.get(self._digest(*owner)), keys)
        owned = self._enter(owner, share)
        held = Held(owned, {key: owned.artifacts.setdefault(key, StoredArtifact(key)) for key in keys})
        for artifact in held.artifacts.values():
            artifact.holders += 1
            if owned.idle.pop(artifact.key, None) is not None:
                self._count_idle(owned, -artifact.kept_bytes)
        try:
            yield held
        finally:
            self._release(held)

    def file_set(self, held: Held, name: str, keys: Iterable[ArtifactKey]) -> FileSet:
        """Return the file set that links to these artifacts. The file set stays until `held` is released.

        If the store removes one of the artifacts, it also removes the set. An artifact that is listed twice needs two
        links. Raises PoolFullError if there is no space for the links.
        """
        owned = held.owned
        if name not in owned.file_sets:
            linked = list(keys)
            room_bytes = self.volume.links_bytes(len(linked))
            self.take(owned, room_bytes)
            owned.file_sets[name] = FileSet(owned.sets_path / name, frozenset(linked), room_bytes)
        file_set = owned.file_sets[name]
        file_set.holders += 1
        self._leave_idle(owned, name)
        held.file_set = file_set
        return file_set

    @contextlib.contextmanager
    def arriving(self, held: Held, artifact: StoredArtifact) -> Iterator[Room]:
        """Yield space that grows as the artifact's bytes arrive. On exit, give back space that was not kept."""
        room = Room(self, held.owned, artifact)
        try:
            yield room
        finally:
            room.end()

    def check_possible(self, owned: OwnedArtifacts, artifact: StoredArtifact, room_bytes: int) -> None:
        """Raise LimitError if an artifact of this owner can never have this much space."""
        if room_bytes > self._limit_bytes:
            raise LimitError(
                f"artifact {artifact.key.sha256.hex()} of {artifact.key.size_bytes} bytes takes {room_bytes} bytes of "
                f"disk or more while it is unpacked, {self.volume.entry_bytes} at least for each file and directory; "
                f"this pool keeps at most {self._limit_bytes}: pack fewer files, or raise --artifact-store-bytes"
            )
        self._tenants.check_cap(owned.tenant, self._tenants[owned.tenant].name, 0, room_bytes)

    def most_entries(self) -> int:
        """Return how many files and directories an empty store can hold."""
        return self._limit_bytes // self.volume.entry_bytes

    async def vacated(self) -> None:
        """Wait until the reserved space is free on the disk. Files that are still being deleted may occupy it."""
        while self._deletions and self.used_bytes + self._trash_bytes > self._limit_bytes:
            await asyncio.wait(self._deletions, return_when=asyncio.FIRST_COMPLETED)

    def take(self, owned: OwnedArtifacts, more_bytes: int) -> None:
        """Reserve space. Evict other artifacts if necessary; raise PoolFullError if too few of them may be evicted."""
        self._make_room(owned, more_bytes)
        self._charge(owned, more_bytes)

    def give_back(self, owned: OwnedArtifacts, less_bytes: int) -> None:
        """Give back reserved space."""
        self._charge(owned, -less_bytes)

    def _digest(self, *texts: str) -> bytes:
        """Return a short name for an owner or a tenant, because their own names may have any length."""
        return hmac.digest(self._secret, json.dumps(texts).encode(), hashlib.sha256)

    def _enter(self, owner: Owner, share: str) -> OwnedArtifacts:
        digest = self._digest(*owner) if owner.application_id else secrets.token_bytes(32)
        if digest not in self._owned:
            self._limit_owners()
            directory, tenant = self._directory / digest.hex(), self._digest(share)
            try:
                self._owned[digest] = OwnedArtifacts(digest, tenant, directory)
                self._tenants.enter(tenant, share)
            except OSError as error:
                raise PoolUnavailableError(f"this pool cannot store an artifact: {error.strerror}") from error
        owned = self._owned[digest]
        self._owned.move_to_end(digest)
        owned.lasting = bool(owner.application_id)
        owned.exchanges += 1
        self._tenants.use(owned.tenant, +1)
        return owned

    def _release(self, held: Held) -> None:
        owned = held.owned
        owned.exchanges -= 1
        self._tenants.use(owned.tenant, -1)
        if held.file_set is not None:
            self._release_set(owned, held.file_set)
        for artifact in held.artifacts.values():
            artifact.holders -= 1
            if artifact.holders:
                continue
            if artifact.path is None:
                del owned.artifacts[artifact.key]
            else:
                owned.idle[artifact.key] = artifact
                self._count_idle(owned, artifact.kept_bytes)
        if not owned.lasting:
            self._evict_all(owned)
            self._forget(owned)

    def _check_announced(self, share: str, owned: OwnedArtifacts | None, keys: frozenset[ArtifactKey]) -> None:
        """Refuse announced artifacts that the store would certainly refuse on arrival."""
        known = owned.artifacts if owned is not None else {}
        there = {key for key in keys if key in known and known[key].path is not None}
        rooms = {key: known[key].kept_bytes if key in there else self.volume.file_bytes(key.size_bytes) for key in keys}
        lacking = keys - there
        # An exchange unpacks one archive at a time. Until the archive is unpacked, its own file stays on the disk.
        unpacked_bytes = max((rooms[key] for key in lacking if key.form is Form.DIRECTORY), default=0)
        announced_bytes = sum(rooms.values()) + unpacked_bytes
        if announced_bytes > self._limit_bytes:
            raise LimitError(
                f"the function needs artifacts that take {announced_bytes} bytes of disk, with an archive and what it "
                f"unpacks to; this pool keeps at most {self._limit_bytes}: raise --artifact-store-bytes"
            )
        arriving_bytes = sum(known[key].arriving_bytes for key in lacking if key in known)
        lacking_bytes = max(0, sum(rooms[key] for key in lacking) + unpacked_bytes - arriving_bytes)
        idle = owned.idle if owned is not None else {}
        wanted_idle_bytes = sum(idle[key].kept_bytes for key in keys if key in idle)
        tenant = self._digest(share)
        self._tenants.check_cap(tenant, share, lacking_bytes + wanted_idle_bytes, announced_bytes)
        # Check the share only at this point, so that artifacts that are already arriving can finish.
        self._tenants.check_share(tenant, lacking_bytes + wanted_idle_bytes)
        self._check_room(tenant, lacking_bytes, self._idle_bytes - wanted_idle_bytes)

    def _check_room(self, tenant: bytes, more_bytes: int, idle_bytes: int) -> None:
        if self.used_bytes + more_bytes - self._limit_bytes > idle_bytes:
            self._tenants.refused(tenant, more_bytes)
            raise self._full(
                f"running exchanges hold artifacts of {self.used_bytes - idle_bytes} of {self._limit_bytes} bytes,"
                f" and {more_bytes} more are needed: retry later, or raise --artifact-store-bytes"
            )

    def _full(self, reason: str) -> PoolFullError:
        return PoolFullError(reason, retry_after_milliseconds=self._retry_after_milliseconds)

    def _make_room(self, owned: OwnedArtifacts, more_bytes: int) -> None:
        """Evict artifacts until `more_bytes` fit: the tenant's own if it exceeds its cap, then artifacts of any tenant.

        The tenant that uses the most space loses artifacts first. Otherwise a tenant could push other tenants out by
        storing more and more.
        """
        tenant = owned.tenant
        while self._tenants.is_beyond_cap(tenant, more_bytes):
            own = [owned for owned in self._owned.values() if owned.may_give_way and owned.tenant == tenant]
            if not own:
                room = self._tenants[tenant]
                self._tenants.check_cap(tenant, room.name, more_bytes, 0)
                break
            self._evict(own[0])
        if self.used_bytes + more_bytes <= self._limit_bytes:
            return
        self._check_room(tenant, more_bytes, self._idle_bytes)
        while self.used_bytes + more_bytes > self._limit_bytes:
            fullest = max((owned for owned in self._owned.values() if owned.may_give_way), key=self._fullness)
            if not self._tenants.may_evict(tenant, more_bytes, fullest.tenant):
                raise self._full(
                    "the store of artifacts is full, and this tenant holds more of it than others with artifacts "
                    "in use: retry later, or raise --artifact-store-bytes"
                )
            self._evict(fullest)

    def _fullness(self, owned: OwnedArtifacts) -> tuple[int, int]:
        return self._tenants[owned.tenant].used_bytes, owned.used_bytes

    def _charge(self, owned: OwnedArtifacts, more_bytes: int) -> None:
        self.used_bytes += more_bytes
        owned.used_bytes += more_bytes
        self._tenants[owned.tenant].used_bytes += more_bytes

    def _count_idle(self, owned: OwnedArtifacts, more_bytes: int) -> None:
        self._idle_bytes += more_bytes
        self._tenants[owned.tenant].idle_bytes += more_bytes

    def _evict(self, owned: OwnedArtifacts) -> None:
        """Remove the least recently used idle file set, or the least recently used idle artifact if there is no set."""
        if owned.idle_sets:
            self._remove_set(owned, next(iter(owned.idle_sets)))
            return
        key, artifact = owned.idle.popitem(last=False)
        self._count_idle(owned, -artifact.kept_bytes)
        del owned.artifacts[key]
        self.discard(owned, artifact)

    def _evict_all(self, owned: OwnedArtifacts) -> None:
        while owned.may_give_way:
            self._evict(owned)

    def _limit_owners(self) -> None:
        if len(self._owned) >= _MOST_OWNERS:
            away = [owned for owned in self._owned.values() if not owned.exchanges]
            if away:
                # Forget the least recently used owner of the tenant that has the most owners.
                loser = max(away, key=lambda owned: self._tenants[owned.tenant].owners)
                self._evict_all(loser)
                self._forget(loser)

    def discard(self, owned: OwnedArtifacts, artifact: StoredArtifact) -> None:
        """Remove the bytes of a changed artifact. Exchanges still hold it, so a client has to send the bytes again."""
        for name in [name for name, file_set in owned.file_sets.items() if artifact.key in file_set.keys]:
            self._remove_set(owned, name)
        if artifact.path is not None:
            self._delete(artifact.path, artifact.kept_bytes)
        artifact.path, artifact.original = None, None
        self.give_back(owned, artifact.kept_bytes)
        artifact.kept_bytes = 0

    def _remove_set(self, owned: OwnedArtifacts, name: str) -> None:
        self._leave_idle(owned, name)
        file_set = owned.file_sets.pop(name)
        self.give_back(owned, file_set.room_bytes)
        self._delete(file_set.path, file_set.room_bytes)

    def _leave_idle(self, owned: OwnedArtifacts, name: str) -> None:
        file_set = owned.idle_sets.pop(name, None)
        if file_set is not None:
            del self._idle_sets[owned.digest, name]
            self._tenants[owned.tenant].idle_sets -= 1
            self._count_idle(owned, -file_set.room_bytes)

    def _release_set(self, owned: OwnedArtifacts, file_set: FileSet) -> None:
        file_set.holders -= 1
        name = file_set.path.name
        if file_set.holders or owned.file_sets.get(name) is not file_set:
            return
        self._idle_sets[owned.digest, name] = owned
        owned.idle_sets[name] = file_set
        self._tenants[owned.tenant].idle_sets += 1
        self._count_idle(owned, file_set.room_bytes)
        if len(self._idle_sets) > _MOST_IDLE_FILE_SETS:
            # Remove the least recently used set of the tenant that has the most idle sets.
            (_, name), loser = max(self._idle_sets.items(), key=lambda item: self._tenants[item[1].tenant].idle_sets)
            self._remove_set(loser, name)

    def _forget(self, owned: OwnedArtifacts) -> None:
        """Forget an owner without exchanges, and its artifacts.

        As long as an owner is remembered, its directory stays, even if it is empty: a worker that is bound to this
        directory could not read a new directory in its place.
        """
        del self._owned[owned.digest]
        self._tenants.leave(owned.tenant)
        self._delete(owned.directory, 0)

    def _delete(self, path: Path, room_bytes: int) -> None:
        """Move the path to the trash and delete it in a thread, because a large tree must not block the event loop."""
        trash = self._trash_path / str(next(self._names))
        # The path of a set is missing if the set could not be laid out.
        with contextlib.suppress(FileNotFoundError):
            path.rename(trash)
        self._trash_bytes += room_bytes
        deletion = asyncio.ensure_future(asyncio.to_thread(remove, trash))
        self._deletions.add(deletion)

        def deleted(deletion: asyncio.Future[None]) -> None:
            self._trash_bytes -= room_bytes
            self._deletions.discard(deletion)

        deletion.add_done_callback(deleted)
