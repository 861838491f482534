# SPDX-License-Identifier: Apache-2.0
"""Artifacts on disk, per owner and within one limit: what exchanges hold stays, of the rest some goes for what comes.

    <directory>/<owner>/stored   its artifacts, checked
    <directory>/<owner>/sets     its sets of files: links to artifacts
    <directory>/arriving         what is not checked yet, of all owners
    <directory>/trash            what is being deleted

Policy and bookkeeping, used from one event loop; `updraft_server.front.artifacts.collector` fills it. Owners share
nothing, not even equal bytes: whoever names a digest gets what its own clients have sent, and what a pool asks for says
nothing about others. Bytes take room when they arrive, and what is unpacked before it is written; an announcement takes
none. Room is what lies on the disk, in blocks and inodes (`updraft_server.front.artifacts.volume`).
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
from updraft_server.front.artifacts.room import Room
from updraft_server.front.artifacts.stored import DIRECTORY_MODE, Belongings, FileSet, StoredArtifact
from updraft_server.front.artifacts.tenant_room import TenantRooms
from updraft_server.front.artifacts.threads import remove
from updraft_server.front.artifacts.volume import Volume
from updraft_server.pool.leases import Owner

# More than honest sessions have at once: without a bound one artifact could become any number of directories of links.
_MOST_IDLE_FILE_SETS = 256
# Each is a few directories, and some memory of the front.
_MOST_OWNERS = 4096


@dataclass(slots=True)
class Held:
    """What one exchange keeps in the store for its time."""

    belongings: Belongings
    artifacts: Mapping[ArtifactKey, StoredArtifact]
    file_set: FileSet | None = None

    @property
    def directory(self) -> str:
        """The owner's."""
        return str(self.belongings.directory)


class ArtifactStore:
    """The artifacts of a pool, in a directory that it owns and empties when it starts."""

    def __init__(
        self, directory: Path, *, limit_bytes: int, retry_after_milliseconds: int, caps: Caps | None = None
    ) -> None:
        self._directory = directory
        self._arriving_path = directory / "arriving"
        self._trash_path = directory / "trash"
        self._limit_bytes = limit_bytes
        self._retry_after_milliseconds = retry_after_milliseconds
        self._belongings: OrderedDict[bytes, Belongings] = OrderedDict()
        self._tenants = TenantRooms(limit_bytes, caps or Caps(), retry_after_milliseconds)
        self._idle_sets: OrderedDict[tuple[bytes, str], Belongings] = OrderedDict()
        """Sets of files that nobody holds, the least recently used first."""
        self._names = itertools.count()
        # Names of directories are no one's to guess, and an owner that comes back finds its paths as they were.
        self._secret = secrets.token_bytes(32)
        self._deletions: set[asyncio.Future[None]] = set()
        self._trash_bytes = 0
        """Room that is given back, and still on the disk."""
        self.used_bytes = 0
        self._idle_bytes = 0
        shutil.rmtree(directory, ignore_errors=True)
        for path in (directory, self._arriving_path, self._trash_path):
            path.mkdir(mode=DIRECTORY_MODE, parents=True)
        self.volume = Volume.of(directory)

    def show_in(self, metrics: Metrics) -> None:
        """Add a gauge of the room in use."""
        metrics.watch(
            "updraft_artifact_store_bytes",
            "Room that broadcast variables, files and unpacked archives take, in blocks or inodes.",
            lambda: self.used_bytes,
        )

    def arriving_path(self) -> Path:
        """A path beside those of all owners that nothing else uses."""
        return self._arriving_path / str(next(self._names))

    def stored_path(self, held: Held) -> Path:
        """A path for an artifact of this owner that nothing else uses."""
        return held.belongings.stored_path / str(next(self._names))

    @contextlib.contextmanager
    def holding(self, owner: Owner, keys: frozenset[ArtifactKey], share: str = "") -> Iterator[Held]:
        """Keep these artifacts of the owner, there or not, for the time of the block.

        They take the share of the tenant `share`, which is the owner's where it is empty. Raises PoolFullError, or
        LimitError for what can never fit. At the end of the block, what has not arrived is forgotten, and the rest
        counts as used now. Who has no application id owns what arrives until then.
        """
        share = share or owner.tenant
        self._check_announced(share, self._belongings.get(self._digest(*owner)), keys)
        belongings = self._enter(owner, share)
        held = Held(belongings, {key: belongings.artifacts.setdefault(key, StoredArtifact(key)) for key in keys})
        for artifact in held.artifacts.values():
            artifact.holders += 1
            if belongings.idle.pop(artifact.key, None) is not None:
                self._count_idle(belongings, -artifact.kept_bytes)
        try:
            yield held
        finally:
            self._release(held)

    def file_set(self, held: Held, name: str, keys: Iterable[ArtifactKey]) -> FileSet:
        """Where links to these artifacts are laid out, held as they are; it goes when one of them goes.

        There is a link for each key, equal ones too. Raises PoolFullError where links find no room.
        """
        belongings = held.belongings
        if name not in belongings.file_sets:
            linked = list(keys)
            room_bytes = self.volume.links_bytes(len(linked))
            self.take(belongings, room_bytes)
            belongings.file_sets[name] = FileSet(belongings.sets_path / name, frozenset(linked), room_bytes)
        file_set = belongings.file_sets[name]
        file_set.holders += 1
        self._leave_idle(belongings, name)
        held.file_set = file_set
        return file_set

    @contextlib.contextmanager
    def arriving(self, held: Held, artifact: StoredArtifact) -> Iterator[Room]:
        """Room for an artifact on its way in, which grows with it, and is given back unless it is kept."""
        room = Room(self, held.belongings, artifact)
        try:
            yield room
        finally:
            room.end()

    def discard(self, held: Held, artifact: StoredArtifact) -> None:
        """Remove an artifact that is not what it was; it is held on, and is to be sent again."""
        self._remove(held.belongings, artifact)

    def check_possible(self, belongings: Belongings, artifact: StoredArtifact, room_bytes: int) -> None:
        """Raise LimitError for more room than an artifact of this owner can ever have."""
        if room_bytes > self._limit_bytes:
            raise LimitError(
                f"artifact {artifact.key.sha256.hex()} of {artifact.key.size_bytes} bytes takes {room_bytes} bytes of "
                f"disk or more while it is unpacked, {self.volume.entry_bytes} at least for each file and directory; "
                f"this pool keeps at most {self._limit_bytes}: pack fewer files, or raise --artifact-store-bytes"
            )
        self._tenants.check_cap(belongings.tenant, self._tenants[belongings.tenant].name, 0, room_bytes)

    def most_entries(self) -> int:
        """Return how many files and directories fit, if nothing else is stored."""
        return self._limit_bytes // self.volume.entry_bytes

    async def vacated(self) -> None:
        """Wait for what gave way to be off the disk, as far as the room that was taken needs it."""
        while self._deletions and self.used_bytes + self._trash_bytes > self._limit_bytes:
            await asyncio.wait(self._deletions, return_when=asyncio.FIRST_COMPLETED)

    def take(self, belongings: Belongings, more_bytes: int) -> None:
        """Take room, for which others may have to go; raises PoolFullError where those that may go are too few."""
        self._make_room(belongings, more_bytes)
        self._charge(belongings, more_bytes)

    def give_back(self, belongings: Belongings, less_bytes: int) -> None:
        """Give room back that was taken."""
        self._charge(belongings, -less_bytes)

    def _digest(self, *texts: str) -> bytes:
        """Names an owner or a tenant, whose own texts may be as long as a client likes."""
        return hmac.digest(self._secret, json.dumps(texts).encode(), hashlib.sha256)

    def _enter(self, owner: Owner, share: str) -> Belongings:
        digest = self._digest(*owner) if owner.application_id else secrets.token_bytes(32)
        if digest not in self._belongings:
            self._limit_owners()
            directory, tenant = self._directory / digest.hex(), self._digest(share)
            try:
                self._belongings[digest] = Belongings(digest, tenant, directory)
                self._tenants.enter(tenant, share)
            except OSError as error:
                raise PoolUnavailableError(f"this pool cannot store an artifact: {error.strerror}") from error
        belongings = self._belongings[digest]
        self._belongings.move_to_end(digest)
        belongings.lasting = bool(owner.application_id)
        belongings.exchanges += 1
        self._tenants.use(belongings.tenant, +1)
        return belongings

    def _release(self, held: Held) -> None:
        belongings = held.belongings
        belongings.exchanges -= 1
        self._tenants.use(belongings.tenant, -1)
        if held.file_set is not None:
            self._release_set(belongings, held.file_set)
        for artifact in held.artifacts.values():
            artifact.holders -= 1
            if artifact.holders:
                continue
            if artifact.path is None:
                del belongings.artifacts[artifact.key]
            else:
                belongings.idle[artifact.key] = artifact
                self._count_idle(belongings, artifact.kept_bytes)
        if not belongings.lasting:
            self._evict_all(belongings)
            self._forget(belongings)

    def _check_announced(self, share: str, belongings: Belongings | None, keys: frozenset[ArtifactKey]) -> None:
        """Refuse now what would certainly be refused once it arrives."""
        known = belongings.artifacts if belongings is not None else {}
        there = {key for key in keys if key in known and known[key].path is not None}
        rooms = {key: known[key].kept_bytes if key in there else self.volume.file_bytes(key.size_bytes) for key in keys}
        lacking = keys - there
        # One archive at a time is unpacked beside its file.
        unpacked_bytes = max((rooms[key] for key in lacking if key.form is Form.DIRECTORY), default=0)
        announced_bytes = sum(rooms.values()) + unpacked_bytes
        if announced_bytes > self._limit_bytes:
            raise LimitError(
                f"the function needs artifacts that take {announced_bytes} bytes of disk, with an archive and what it "
                f"unpacks to; this pool keeps at most {self._limit_bytes}: raise --artifact-store-bytes"
            )
        arriving_bytes = sum(known[key].arriving_bytes for key in lacking if key in known)
        lacking_bytes = max(0, sum(rooms[key] for key in lacking) + unpacked_bytes - arriving_bytes)
        idle = belongings.idle if belongings is not None else {}
        wanted_idle_bytes = sum(idle[key].kept_bytes for key in keys if key in idle)
        tenant = self._digest(share)
        self._tenants.check_cap(tenant, share, lacking_bytes + wanted_idle_bytes, announced_bytes)
        # Only now: those that arrive already come to their end.
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

    def _make_room(self, belongings: Belongings, more_bytes: int) -> None:
        """Whoever uses most loses first, so that nobody pushes others out by bringing more and more."""
        tenant = belongings.tenant
        while self._tenants.is_beyond_cap(tenant, more_bytes):
            own = [owned for owned in self._belongings.values() if owned.may_give_way and owned.tenant == tenant]
            if not own:
                room = self._tenants[tenant]
                self._tenants.check_cap(tenant, room.name, more_bytes, 0)
                break
            self._evict(own[0])
        if self.used_bytes + more_bytes <= self._limit_bytes:
            return
        self._check_room(tenant, more_bytes, self._idle_bytes)
        while self.used_bytes + more_bytes > self._limit_bytes:
            fullest = max((owned for owned in self._belongings.values() if owned.may_give_way), key=self._fullness)
            if not self._tenants.may_evict(tenant, more_bytes, fullest.tenant):
                raise self._full(
                    "the store of artifacts is full, and this tenant holds more of it than others with artifacts "
                    "in use: retry later, or raise --artifact-store-bytes"
                )
            self._evict(fullest)

    def _fullness(self, belongings: Belongings) -> tuple[int, int]:
        return self._tenants[belongings.tenant].used_bytes, belongings.used_bytes

    def _charge(self, belongings: Belongings, more_bytes: int) -> None:
        self.used_bytes += more_bytes
        belongings.used_bytes += more_bytes
        self._tenants[belongings.tenant].used_bytes += more_bytes

    def _count_idle(self, belongings: Belongings, more_bytes: int) -> None:
        self._idle_bytes += more_bytes
        self._tenants[belongings.tenant].idle_bytes += more_bytes

    def _evict(self, belongings: Belongings) -> None:
        """Remove a set of files that is not in use, or else the least recently used artifact that no exchange holds."""
        if belongings.idle_sets:
            self._remove_set(belongings, next(iter(belongings.idle_sets)))
            return
        key, artifact = belongings.idle.popitem(last=False)
        self._count_idle(belongings, -artifact.kept_bytes)
        del belongings.artifacts[key]
        self._remove(belongings, artifact)

    def _evict_all(self, belongings: Belongings) -> None:
        while belongings.may_give_way:
            self._evict(belongings)

    def _limit_owners(self) -> None:
        if len(self._belongings) >= _MOST_OWNERS:
            away = [owned for owned in self._belongings.values() if not owned.exchanges]
            if away:
                # Of the tenant that has most, the least recently used.
                loser = max(away, key=lambda owned: self._tenants[owned.tenant].owners)
                self._evict_all(loser)
                self._forget(loser)

    def _remove(self, belongings: Belongings, artifact: StoredArtifact) -> None:
        for name in [name for name, file_set in belongings.file_sets.items() if artifact.key in file_set.keys]:
            self._remove_set(belongings, name)
        if artifact.path is not None:
            self._delete(artifact.path, artifact.kept_bytes)
        artifact.path, artifact.original = None, None
        self.give_back(belongings, artifact.kept_bytes)
        artifact.kept_bytes = 0

    def _remove_set(self, belongings: Belongings, name: str) -> None:
        self._leave_idle(belongings, name)
        file_set = belongings.file_sets.pop(name)
        self.give_back(belongings, file_set.room_bytes)
        self._delete(file_set.path, file_set.room_bytes)

    def _leave_idle(self, belongings: Belongings, name: str) -> None:
        file_set = belongings.idle_sets.pop(name, None)
        if file_set is not None:
            del self._idle_sets[belongings.digest, name]
            self._tenants[belongings.tenant].idle_sets -= 1
            self._count_idle(belongings, -file_set.room_bytes)

    def _release_set(self, belongings: Belongings, file_set: FileSet) -> None:
        file_set.holders -= 1
        name = file_set.path.name
        if file_set.holders or belongings.file_sets.get(name) is not file_set:
            return
        self._idle_sets[belongings.digest, name] = belongings
        belongings.idle_sets[name] = file_set
        self._tenants[belongings.tenant].idle_sets += 1
        self._count_idle(belongings, file_set.room_bytes)
        if len(self._idle_sets) > _MOST_IDLE_FILE_SETS:
            # Of the tenant that has most, the least recently used.
            (_, name), loser = max(self._idle_sets.items(), key=lambda item: self._tenants[item[1].tenant].idle_sets)
            self._remove_set(loser, name)

    def _forget(self, belongings: Belongings) -> None:
        """Forget an owner who is away, artifacts and all. Others keep their directories, empty or not: workers that
        were bound to one could not read what takes its place."""
        del self._belongings[belongings.digest]
        self._tenants.leave(belongings.tenant)
        self._delete(belongings.directory, 0)

    def _delete(self, path: Path, room_bytes: int) -> None:
        """Out of the way at once, gone soon: a large tree must not hold the event loop up."""
        trash = self._trash_path / str(next(self._names))
        # A set whose laying out has failed is not there.
        with contextlib.suppress(FileNotFoundError):
            path.rename(trash)
        self._trash_bytes += room_bytes
        deletion = asyncio.ensure_future(asyncio.to_thread(remove, trash))
        self._deletions.add(deletion)

        def deleted(deletion: asyncio.Future[None]) -> None:
            self._trash_bytes -= room_bytes
            self._deletions.discard(deletion)

        deletion.add_done_callback(deleted)
