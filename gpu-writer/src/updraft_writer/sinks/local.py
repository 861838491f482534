# SPDX-License-Identifier: Apache-2.0
"""Files on this machine, including mounted volumes, in directories that are opened without following links.

The writer resolves a path and compares it with the roots once. Later, anyone who may write below a root can replace a
directory with a link; if the writer then resolved the path again, it would write elsewhere. So this module never
resolves a path again: it opens directories name by name through the descriptor of the parent. A resolved path has no
links below the root, so a link found there must be new, and this module refuses it. Unlike openat2, this works on every
Linux kernel, and it can create missing directories.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from updraft_writer.pieces import Piece
from updraft_writer.sinks.sink import InDoubtError, LostError, Standing, hidden_name, is_published

_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
# The directories above a file need not be readable.
_PASSED = os.O_PATH | _DIRECTORY


class _Identity(NamedTuple):
    """Identity of a file, which a rename does not change."""

    device: int
    inode: int


class LocalStorage:
    """Local file, written under a hidden name and then renamed.

    With `sync`, the file and its name are on the disk before the file counts as published.
    """

    def __init__(
        self,
        path: Path,
        *,
        root: Path = Path("/"),
        sync: bool = True,
        unsynced: set[Path] | None = None,
        in_table: bool = False,
    ) -> None:
        """Prepare a file. Links that appear later are not followed.

        Args:
            path: Place of the file, below `root` and without links.
            root: Directory from which directories are opened one by one.
            sync: Whether the file and its name are synced.
            unsynced: Directories that this process has created and not synced yet; shared by all files.
            in_table: Whether the file belongs to a table (see `hidden_name`).
        """
        self._root = root
        self._unsynced = set() if unsynced is None else unsynced
        self._path = path
        self._hidden = path.with_name(hidden_name(path.name, uuid4().hex, in_table=in_table))
        self._sync = sync
        self._descriptor: int | None = None
        # Descriptor of the hidden file's directory. The descriptor stays valid if the directory is renamed or replaced.
        self._directory: int | None = None
        self._identity: _Identity | None = None
        self._new_directories: list[Path] | None = None
        # Error of a failed rename that may have taken effect anyway.
        self._doubt: OSError | None = None

    def open(self) -> None:
        """Create the hidden file and, like Hadoop, the directories above it; raises OSError and LostError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._close_directory()
        self._directory = self._make_directories()
        self._descriptor = os.open(self._hidden.name, flags, 0o666, dir_fd=self._directory)

    def write(self, piece: Piece) -> None:
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
        # Forget the descriptor first, because Linux frees it even if close fails. Network file systems report lost
        # writes when a file is closed.
        descriptor, self._descriptor = self._descriptor, None
        os.close(descriptor)

    def publish(self) -> None:
        """Rename to the final name, atomically for readers; raises OSError, InDoubtError and LostError."""
        # Open the directory for the sync before the rename: if opening fails, nothing has been renamed yet.
        with _closing(self._opened_directory()) as directory:
            self._rename_once(directory)
            self._close_directory()
            if not self._sync:
                return
            try:
                _sync_directory(directory)
            except OSError as error:
                raise LostError("its directory cannot be synced", error, Standing.UNSYNCED) from error

    def discard(self) -> None:
        """Remove the hidden file; raises OSError."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            # The file's bytes are no longer needed, so an error of close does not matter.
            with suppress(OSError):
                os.close(descriptor)
        # Forget the descriptor, so that a second attempt opens the directory by name.
        kept, self._directory = self._directory, None
        with suppress(FileNotFoundError):
            directory = _passed(self._root, self._hidden.parent) if kept is None else kept
            with _closing(directory):
                os.unlink(self._hidden.name, dir_fd=directory)

    def _close_directory(self) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            # Nothing was written through the descriptor, so closing it cannot lose anything.
            with suppress(OSError):
                os.close(directory)

    def _make_directories(self) -> int:
        """Create the missing directories and return a descriptor of the file's directory."""
        parent = self._path.parent
        # Keep this list for the next attempt, because this attempt may create directories and then fail.
        if self._new_directories is None:
            places = (parent, *parent.parents)
            self._new_directories = [place for place in places if place in self._unsynced or not place.exists()]
        # Record the directories before creating them: another file that finds a new directory must see that it is not
        # yet synced.
        self._unsynced.update(self._new_directories if self._sync else ())
        directory = _made(self._root, parent)
        try:
            self._sync_new_directories()
        except BaseException:
            os.close(directory)
            raise
        return directory

    def _sync_new_directories(self) -> None:
        # Sync the directories now rather than with this file, because other files in these directories may receive
        # their receipts earlier.
        new_directories = self._new_directories or []
        for place in reversed(new_directories if self._sync else []):
            try:
                with _closing(self._opened_above(place)) as directory:
                    _sync_directory(directory)
            except OSError as error:
                # Remove the new directories, because a second sync would succeed and hide the loss. The next file has
                # to create them again.
                for unsynced in new_directories:
                    with suppress(OSError), _closing(self._opened_above(unsynced)) as directory:
                        os.rmdir(unsynced.name, dir_fd=directory)
                        self._unsynced.discard(unsynced)
                raise LostError(f"the new directory {place} cannot be synced", error) from error
            self._unsynced.discard(place)

    def _opened_directory(self) -> int:
        try:
            # The directory must be readable only if it will be synced.
            return (_opened if self._sync else _passed)(self._root, self._path.parent)
        except OSError as error:
            if self._doubt is None:
                raise
            raise InDoubtError("its directory cannot be opened", error) from error

    def _opened_above(self, place: Path) -> int:
        """Open the parent of a new directory. Links above the root are followed, because the operator made them."""
        if place.is_relative_to(self._root) and place != self._root:
            return _opened(self._root, place.parent)
        return os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _rename_once(self, directory: int) -> None:
        if self._doubt is not None and self._is_published():
            return
        try:
            os.rename(self._hidden.name, self._path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError as error:
            # A network file system may have renamed the file in spite of the error. Either its reply was lost, or its
            # first request succeeded and a repetition of the request failed.
            self._doubt = error
            if not self._is_published():
                raise

    def _is_published(self) -> bool:
        return is_published(self._names_held, self._doubt)

    def _names_held(self) -> tuple[bool, bool]:
        # Open the directory again for each lookup, so that NFS asks its server instead of its cache.
        with _closing(_opened(self._root, self._path.parent)) as directory:
            final, hidden = (_identity_of(path.name, directory) for path in (self._path, self._hidden))
        return final == self._identity, hidden == self._identity


def _sync_directory(directory: int) -> None:
    """Sync a directory. EINVAL means that its file system cannot sync directories, so ignore it: no data is lost."""
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
        # Nothing was written through the descriptor, so closing it cannot lose anything.
        with suppress(OSError):
            os.close(directory)


def _identity(status: os.stat_result) -> _Identity:
    return _Identity(status.st_dev, status.st_ino)


def _identity_of(name: str, directory: int) -> _Identity | None:
    """Return the identity of the named file in a directory, or None if it does not exist."""
    try:
        return _identity(os.lstat(name, dir_fd=directory))
    except FileNotFoundError:
        return None


def _opened(root: Path, directory: Path) -> int:
    """Open a root or a directory below it, to sync it or to use its entries. Returns a descriptor; raises OSError."""
    return _descend(root, directory, _open_in, os.O_RDONLY | _DIRECTORY)


def _passed(root: Path, directory: Path) -> int:
    """Open a directory that need not be readable. The descriptor gives access to the entries, but cannot be synced."""
    return _descend(root, directory, _open_in, _PASSED)


def _made(root: Path, directory: Path) -> int:
    """Open a directory like `_passed`, after creating the root and all missing directories; raises OSError."""
    root.mkdir(parents=True, exist_ok=True)
    return _descend(root, directory, _make_in, _PASSED)


def _descend(root: Path, directory: Path, step: Callable[[int, str, int], int], flags: int) -> int:
    names = directory.relative_to(root).parts
    descriptor = os.open(root, _PASSED if names else flags)
    for left, name in enumerate(names, start=1 - len(names)):
        above = descriptor
        try:
            descriptor = step(above, name, _PASSED if left else flags)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            message = f"{name!r} has become a link or a file, and was a directory when the path was resolved"
            raise OSError(error.errno, message) from error
        finally:
            os.close(above)
    return descriptor


def _open_in(above: int, name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW, dir_fd=above)


def _make_in(above: int, name: str, flags: int) -> int:
    with suppress(FileNotFoundError):
        return _open_in(above, name, flags)
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=above)
    return _open_in(above, name, flags)
