# SPDX-License-Identifier: Apache-2.0
"""Detection of stored artifacts that have changed since they were checked.

If the kernel has Landlock, no worker can write to the store. Otherwise a worker that runs as the same user can make
read-only files writable. But the worker cannot reset the time of a file's last status change (ctime), so an unchanged
file state proves that the file is intact. The front's own links change ctime too, so if a file's state has changed, the
front compares the bytes.

An unpacked archive has no digest to compare with, so any change of a file, a link or the tree counts as tampering.
A check of a whole tree takes milliseconds per thousand files. Therefore the front waits a hundred times as long as the
last check took before it checks again. It removes Python's bytecode caches, which are not part of the archive.
"""

import contextlib
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from updraft_server.front.artifacts.needs import ArtifactKey, Form
from updraft_server.front.artifacts.threads import remove

_CACHE = "__pycache__"
_GONE = (FileNotFoundError,)
_READ_BYTES = 1024 * 1024
_COMPARISONS = 5
"""How often a file's bytes are compared if its state changes meanwhile, as when the front makes or removes a link."""
_SECONDS_BETWEEN_LOOKS = 100
"""How many seconds pass before a tree is checked again, for each second that the last check took."""

Clock = Callable[[], float]


class Original(Protocol):
    """State of an artifact at the time of its check. The methods block."""

    def still(self) -> bool:
        """Return whether the artifact is unchanged."""

    def linked(self, link: Callable[[], None]) -> None:
        """Call `link`, which makes a link to the artifact, and do not count the link as a change."""


def original(key: ArtifactKey, path: Path, clock: Clock = time.monotonic) -> Original:
    """Record the state of an artifact that has just been checked; blocks, and raises OSError."""
    return _Tree(path, clock) if key.form is Form.DIRECTORY else _File(path, key.sha256)


class _State(NamedTuple):
    """State of a file. As long as the state stays the same, the bytes are unchanged."""

    inode: int
    mode: int
    size_bytes: int
    modified: int
    changed: int


class _File:
    def __init__(self, path: Path, sha256: bytes) -> None:
        self._path = path
        self._sha256 = sha256
        self._state = _state(path)

    def still(self) -> bool:
        with contextlib.suppress(OSError):
            for _ in range(_COMPARISONS):
                state = _state(self._path)
                if state == self._state:
                    return True
                if _digest(self._path) != self._sha256:
                    return False
                if _state(self._path) == state:
                    self._state = state
                    return True
        return False

    def linked(self, link: Callable[[], None]) -> None:
        unchanged = _state(self._path) == self._state
        link()
        if unchanged:
            self._state = _state(self._path)


class _Tree:
    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._next_look = 0.0
        self._looking = threading.Lock()
        self._all, self._but_caches = self._look()

    def still(self) -> bool:
        with self._looking:
            return self._clock() < self._next_look or self._still()

    def _still(self) -> bool:
        try:
            everything, but_caches = self._look()
            if everything == self._all:
                return True
            if but_caches != self._but_caches:
                return False
            for parent, names, _ in os.walk(self._path):
                if _CACHE in names:
                    names.remove(_CACHE)
                    remove(Path(parent, _CACHE))
            self._all, but_caches = self._look()
        except OSError:
            return False
        return but_caches == self._but_caches

    def linked(self, link: Callable[[], None]) -> None:
        link()

    def _look(self) -> tuple[bytes, bytes]:
        """Return digests of the tree, with and without bytecode caches."""
        began = self._clock()
        everything, but_caches = hashlib.sha256(), hashlib.sha256()
        for path, state, in_cache in _walk(self._path):
            line = os.fsencode(f"{path}\0{state}\0")
            everything.update(line)
            if not in_cache:
                but_caches.update(line)
        ended = self._clock()
        self._next_look = ended + _SECONDS_BETWEEN_LOOKS * (ended - began)
        return everything.digest(), but_caches.digest()


def _walk(root: Path) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Yield path and state of each entry of a tree, and whether it is in a bytecode cache; raise OSError."""
    waiting = [(os.fspath(root), False)]
    while waiting:
        directory, in_cache = waiting.pop()
        # A worker may be changing the cache at the same time.
        with contextlib.suppress(*_GONE if in_cache else ()), os.scandir(directory) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                found = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(found.st_mode):
                    yield entry.path, _of(found), in_cache
                    continue
                cached = in_cache or entry.name == _CACHE
                waiting.append((entry.path, cached))
                # Leave out the times of directories, because creating or removing a cache changes the times of its
                # parent directory.
                yield entry.path, (found.st_ino, found.st_mode), cached


def _state(path: Path) -> _State:
    return _of(path.lstat())


def _of(found: os.stat_result) -> _State:
    return _State(found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _digest(path: Path) -> bytes:
    digest = hashlib.sha256()
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        while data := os.read(file, _READ_BYTES):
            digest.update(data)
    finally:
        os.close(file)
    return digest.digest()
