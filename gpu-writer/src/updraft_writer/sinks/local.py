# SPDX-License-Identifier: Apache-2.0
"""Files of this machine, also on a mounted volume."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from updraft_writer.sinks.sink import InDoubtError, LostError, Standing, hidden_name


class _Identity(NamedTuple):
    """What stays with a file when its name changes."""

    device: int
    inode: int


class LocalStorage:
    """A hidden file that is renamed; with `sync` it is on the disk, name and all, before it counts as published."""

    def __init__(self, path: Path, *, sync: bool = True, unsynced: set[Path] | None = None) -> None:
        """`unsynced` are directories that files of this process made and have not synced; the files share it."""
        self._unsynced = set() if unsynced is None else unsynced
        self._path = path
        self._hidden = path.with_name(hidden_name(path.name, uuid4().hex))
        self._sync = sync
        self._descriptor: int | None = None
        self._identity: _Identity | None = None
        self._new_directories: list[Path] | None = None
        # The error of a rename that may have taken effect all the same.
        self._doubt: OSError | None = None

    def open(self) -> None:
        """Make the hidden file, and the directories above it as Hadoop does; raises OSError and LostError."""
        self._make_directories()
        self._descriptor = os.open(self._hidden, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def write(self, piece: bytes) -> None:
        """Append a piece; raises OSError."""
        assert self._descriptor is not None, "written before opened"
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def complete(self) -> None:
        """Sync and close the hidden file; raises OSError."""
        assert self._descriptor is not None, "completed before opened"
        self._identity = _identity(os.fstat(self._descriptor))
        if self._sync:
            os.fsync(self._descriptor)
        # Linux takes the descriptor back even when close fails, and network file systems report lost writes here.
        descriptor, self._descriptor = self._descriptor, None
        os.close(descriptor)

    def publish(self) -> None:
        """Rename to the final name, in one step for every reader; raises OSError, InDoubtError and LostError."""
        if not self._sync:
            self._rename_once()
            return
        # Opened before the rename: a directory that cannot be synced fails in time.
        with _closing(self._opened_directory()) as directory:
            self._rename_once()
            try:
                _sync_directory(directory)
            except OSError as error:
                raise LostError("its directory cannot be synced", error, Standing.UNSYNCED) from error

    def discard(self) -> None:
        """Remove the hidden file; raises OSError."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            # Nobody wants its bytes any more.
            with suppress(OSError):
                os.close(descriptor)
        self._hidden.unlink(missing_ok=True)

    def _make_directories(self) -> None:
        parent = self._path.parent
        # Remembered, because an attempt that fails may make them all the same.
        if self._new_directories is None:
            places = (parent, *parent.parents)
            self._new_directories = [place for place in places if place in self._unsynced or not place.exists()]
        # Before they are made: another file that finds one there must not take it for synced.
        self._unsynced.update(self._new_directories if self._sync else ())
        parent.mkdir(parents=True, exist_ok=True)
        # At once and not with the file: other files may get their receipts in these directories before this one.
        for place in reversed(self._new_directories if self._sync else []):
            try:
                with _closing(_open_directory(place.parent)) as directory:
                    _sync_directory(directory)
            except OSError as error:
                # Synced once more, it would say that all is well: only one that is made again can be synced.
                for unsynced in self._new_directories:
                    with suppress(OSError):
                        unsynced.rmdir()
                        self._unsynced.discard(unsynced)
                raise LostError(f"the new directory {place} cannot be synced", error) from error
            self._unsynced.discard(place)

    def _opened_directory(self) -> int:
        try:
            return _open_directory(self._path.parent)
        except OSError as error:
            if self._doubt is None:
                raise
            raise InDoubtError("its directory cannot be opened", error) from error

    def _rename_once(self) -> None:
        if self._doubt is not None and self._is_published():
            return
        try:
            self._hidden.replace(self._path)
        except OSError as error:
            # A network file system may have done it and lost the answer, or answer its own second request.
            self._doubt = error
            if not self._is_published():
                raise

    def _is_published(self) -> bool:
        """Whether the final name is this file's; raises InDoubtError when that cannot be said."""
        try:
            # Opened for each look: NFS then asks its server and not its cache.
            with _closing(_open_directory(self._path.parent)) as directory:
                final, hidden = (_identity_of(path.name, directory) for path in (self._path, self._hidden))
        except OSError as error:
            raise InDoubtError("its names cannot be looked up", error) from error
        if self._identity not in (final, hidden):
            assert self._doubt is not None, "looked up before renamed"
            message = "the file has neither its hidden nor its final name: somebody else removed or replaced it"
            raise InDoubtError(message, self._doubt)
        return final == self._identity


def _open_directory(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _sync_directory(directory: int) -> None:
    """Sync a directory, where its file system can do that: EINVAL says that it cannot, and reports no loss."""
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


@contextmanager
def _closing(directory: int) -> Iterator[int]:
    try:
        yield directory
    finally:
        # Nothing was written to it that closing could lose.
        with suppress(OSError):
            os.close(directory)


def _identity(status: os.stat_result) -> _Identity:
    return _Identity(status.st_dev, status.st_ino)


def _identity_of(name: str, directory: int) -> _Identity | None:
    """The identity of what has a name in a directory; None when nothing has it."""
    try:
        return _identity(os.lstat(name, dir_fd=directory))
    except FileNotFoundError:
        return None
