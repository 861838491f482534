# SPDX-License-Identifier: Apache-2.0
"""Artifacts on disk, within a limit: what exchanges hold stays, of the rest the least recently used goes first.

Policy and bookkeeping, used from one event loop; `updraft_server.front.artifacts.collector` fills it. An artifact takes
its room from the moment when an exchange asks for it, so that what has begun to arrive also fits. Nobody is trusted
with a digest, but tenants are not told apart: whoever may run session functions may name any artifact.
"""

import asyncio
import contextlib
import itertools
import shutil
from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from pathlib import Path

from updraft.errors import LimitError, PoolFullError
from updraft_server.front.artifacts.needs import ArtifactKey


class StoredArtifact:
    """An artifact that is there, or that an exchange waits for."""

    def __init__(self, key: ArtifactKey) -> None:
        self.key = key
        self.path: Path | None = None
        """None until it is there."""
        self.holders = 0
        self.senders = 0
        """Exchanges whose clients are sending it now."""
        self.arrived_bytes = 0
        """Of all senders together: it grows as long as one of them really sends."""
        self._changed = asyncio.Event()

    def began(self) -> None:
        """An exchange has asked its client for it."""
        self.senders += 1

    def ended(self) -> None:
        """That exchange has got it, or has given up."""
        self.senders -= 1
        self._changed.set()
        self._changed = asyncio.Event()

    def change(self) -> Awaitable[object]:
        """Comes when a sender ends, from now on."""
        return self._changed.wait()


Held = Mapping[ArtifactKey, StoredArtifact]
"""The artifacts of one exchange, which stay for its time."""


class ArtifactStore:
    """The artifacts of a pool, in a directory that it owns and empties when it starts."""

    def __init__(self, directory: Path, *, limit_bytes: int, retry_after_milliseconds: int) -> None:
        self._stored_path = directory / "stored"
        self._sets_path = directory / "sets"
        self._trash_path = directory / "trash"
        self._limit_bytes = limit_bytes
        self._retry_after_milliseconds = retry_after_milliseconds
        self._artifacts: OrderedDict[ArtifactKey, StoredArtifact] = OrderedDict()
        self._file_sets: dict[Path, frozenset[ArtifactKey]] = {}
        self._names = itertools.count()
        self._deletions: set[asyncio.Future[None]] = set()
        self.used_bytes = 0
        shutil.rmtree(directory, ignore_errors=True)
        for path in (self._stored_path, self._sets_path, self._trash_path):
            path.mkdir(mode=0o700, parents=True)

    def new_path(self) -> Path:
        """A path in the store that nothing else uses."""
        return self._stored_path / str(next(self._names))

    def file_set_path(self, name: str, keys: Iterable[ArtifactKey]) -> Path:
        """Where links to these artifacts are laid out; they go when one of the artifacts goes."""
        path = self._sets_path / name
        self._file_sets[path] = frozenset(keys)
        return path

    @contextlib.contextmanager
    def holding(self, keys: frozenset[ArtifactKey]) -> Iterator[Held]:
        """Keep these artifacts, there or not, for the time of the block.

        Raises PoolFullError, or LimitError for what can never fit. At the end of the block, what has not arrived is
        forgotten, and the rest counts as used now.
        """
        self._make_room(keys)
        for key in keys:
            if key not in self._artifacts:
                self._artifacts[key] = StoredArtifact(key)
                self.used_bytes += key.size_bytes
            self._artifacts[key].holders += 1
        held = {key: self._artifacts[key] for key in keys}
        try:
            yield held
        finally:
            for artifact in held.values():
                artifact.holders -= 1
                if artifact.path is not None:
                    self._artifacts.move_to_end(artifact.key)
                elif not artifact.holders:
                    self._forget(artifact)

    def _make_room(self, wanted: frozenset[ArtifactKey]) -> None:
        wanted_bytes = sum(key.size_bytes for key in wanted)
        if wanted_bytes > self._limit_bytes:
            raise LimitError(
                f"the function needs artifacts of {wanted_bytes} bytes, this pool keeps at most {self._limit_bytes}:"
                " raise --artifact-store-bytes"
            )
        idle = [
            artifact for artifact in self._artifacts.values() if not artifact.holders and artifact.key not in wanted
        ]
        new_bytes = sum(key.size_bytes for key in wanted if key not in self._artifacts)
        excess_bytes = self.used_bytes + new_bytes - self._limit_bytes
        if excess_bytes > sum(artifact.key.size_bytes for artifact in idle):
            raise PoolFullError(
                f"running exchanges hold artifacts of {self.used_bytes} of {self._limit_bytes} bytes,"
                f" and {new_bytes} more are needed: retry later, or raise --artifact-store-bytes",
                retry_after_milliseconds=self._retry_after_milliseconds,
            )
        for artifact in idle:
            if self.used_bytes + new_bytes <= self._limit_bytes:
                return
            self._evict(artifact)

    def _forget(self, artifact: StoredArtifact) -> None:
        del self._artifacts[artifact.key]
        self.used_bytes -= artifact.key.size_bytes

    def _evict(self, artifact: StoredArtifact) -> None:
        self._forget(artifact)
        paths = [path for path, keys in self._file_sets.items() if artifact.key in keys]
        for path in paths:
            del self._file_sets[path]
        if artifact.path is not None:
            paths.append(artifact.path)
        self._delete(paths)

    def _delete(self, paths: Iterable[Path]) -> None:
        """Out of the way at once, gone soon: a large tree must not hold the event loop up."""
        trash = self._trash_path / str(next(self._names))
        trash.mkdir()
        for number, path in enumerate(paths):
            # A set whose laying out has failed is not there.
            with contextlib.suppress(FileNotFoundError):
                path.rename(trash / str(number))
        deletion = asyncio.ensure_future(asyncio.to_thread(shutil.rmtree, trash, ignore_errors=True))
        self._deletions.add(deletion)
        deletion.add_done_callback(self._deletions.discard)
