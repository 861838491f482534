# SPDX-License-Identifier: Apache-2.0
"""Contents on disk, within a limit: what exchanges hold stays, of the rest the least recently used goes first.

Policy and bookkeeping, used from one event loop; `updraft_server.front.artifacts.gathering` fills it. A content takes
its room from the moment when an exchange asks for it, so that what has begun to arrive also fits. Nobody is trusted
with a digest, but tenants are not told apart: whoever may run session functions may name any content.
"""

import asyncio
import contextlib
import itertools
import shutil
from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Mapping
from pathlib import Path

from updraft.errors import LimitError, PoolFullError
from updraft_server.front.artifacts.needs import ContentKey


class StoredContent:
    """A content that is there, or that an exchange waits for."""

    def __init__(self, key: ContentKey) -> None:
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


class Holding:
    """The contents of one exchange, which stay until they are released."""

    def __init__(self, store: "ContentStore", contents: Mapping[ContentKey, StoredContent]) -> None:
        self._store = store
        self._contents = contents

    def missing(self) -> list[StoredContent]:
        """What is not there yet."""
        return [content for content in self._contents.values() if content.path is None]

    def path(self, key: ContentKey) -> Path:
        """Where a content lies that is there."""
        path = self._contents[key].path
        if path is None:
            raise KeyError(key)
        return path

    def release(self) -> None:
        """Let the contents go."""
        contents, self._contents = self._contents, {}
        self._store.let_go(contents.values())


class ContentStore:
    """The contents of a pool, in a directory that it owns and empties when it starts."""

    def __init__(self, directory: Path, *, limit_bytes: int, retry_after_milliseconds: int) -> None:
        self._contents_path = directory / "contents"
        self._sets_path = directory / "sets"
        self._trash_path = directory / "trash"
        self._limit_bytes = limit_bytes
        self._retry_after_milliseconds = retry_after_milliseconds
        self._contents: OrderedDict[ContentKey, StoredContent] = OrderedDict()
        self._file_sets: dict[Path, frozenset[ContentKey]] = {}
        self._names = itertools.count()
        self._deletions: set[asyncio.Future[None]] = set()
        self.used_bytes = 0
        shutil.rmtree(directory, ignore_errors=True)
        for path in (self._contents_path, self._sets_path, self._trash_path):
            path.mkdir(mode=0o700, parents=True)

    def new_path(self) -> Path:
        """A path in the store that nothing else uses."""
        return self._contents_path / str(next(self._names))

    def file_set_path(self, name: str, keys: Iterable[ContentKey]) -> Path:
        """Where links to these contents are laid out; they go when one of the contents goes."""
        path = self._sets_path / name
        self._file_sets[path] = frozenset(keys)
        return path

    def hold(self, keys: frozenset[ContentKey]) -> Holding:
        """Keep these contents, there or not; raises PoolFullError, or LimitError for what can never fit."""
        self._make_room(keys)
        for key in keys:
            if key not in self._contents:
                self._contents[key] = StoredContent(key)
                self.used_bytes += key.size_bytes
            self._contents[key].holders += 1
        return Holding(self, {key: self._contents[key] for key in keys})

    def let_go(self, contents: Iterable[StoredContent]) -> None:
        """The end of a holding: what has not arrived is forgotten, the rest counts as used now."""
        for content in contents:
            content.holders -= 1
            if content.path is not None:
                self._contents.move_to_end(content.key)
            elif not content.holders:
                self._forget(content)

    def _make_room(self, wanted: frozenset[ContentKey]) -> None:
        wanted_bytes = sum(key.size_bytes for key in wanted)
        if wanted_bytes > self._limit_bytes:
            raise LimitError(
                f"the function needs contents of {wanted_bytes} bytes, this pool keeps at most {self._limit_bytes}:"
                " raise --content-store-bytes"
            )
        idle = [content for content in self._contents.values() if not content.holders and content.key not in wanted]
        new_bytes = sum(key.size_bytes for key in wanted if key not in self._contents)
        excess_bytes = self.used_bytes + new_bytes - self._limit_bytes
        if excess_bytes > sum(content.key.size_bytes for content in idle):
            raise PoolFullError(
                f"running exchanges hold contents of {self.used_bytes} of {self._limit_bytes} bytes,"
                f" and {new_bytes} more are needed: come again later, or raise --content-store-bytes",
                retry_after_milliseconds=self._retry_after_milliseconds,
            )
        for content in idle:
            if self.used_bytes + new_bytes <= self._limit_bytes:
                return
            self._evict(content)

    def _forget(self, content: StoredContent) -> None:
        del self._contents[content.key]
        self.used_bytes -= content.key.size_bytes

    def _evict(self, content: StoredContent) -> None:
        self._forget(content)
        paths = [path for path, keys in self._file_sets.items() if content.key in keys]
        for path in paths:
            del self._file_sets[path]
        if content.path is not None:
            paths.append(content.path)
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
