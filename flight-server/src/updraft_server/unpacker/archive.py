# SPDX-License-Identifier: Apache-2.0
"""Unpacking of one tar archive, within bounds that are checked before the library allocates what a header asks for.

Before `tarfile` returns a member to its caller, it reads the member's long names, pax headers and sparse maps into
memory, in the sizes that the headers claim. `tarfile` therefore reads the archive through `_BoundedFile`, which limits
the bytes that are read for each member's headers.
"""

import errno
import os
import platform
import stat
import tarfile
from collections.abc import Callable
from typing import IO, Any

from updraft_server.ipc.unpacking import UnpackBounds

_MAX_DATA_READ_BYTES = 1024 * 1024
# Errors that the names in an archive cause on any disk. No other pool could unpack this archive either.
_FAULTS_OF_NAMES = frozenset(
    {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENOENT, errno.EINVAL}
)
# Landlock's errors for a path outside the directory, and the error of RLIMIT_FSIZE for a file that exceeds the bound.
_FAULTS_OF_BOUNDS = frozenset({errno.EACCES, errno.EXDEV, errno.EFBIG})
# The workers' side, which may run as another user, must be able to read the files too.
_READABLE = 0o444
_EXECUTABLE = 0o555
# Extra room in each request, as a fraction of the needed room, so that an archive of any size takes only a few dozen
# requests.
_MORE_ROOM = 1 / 16

AskForRoom = Callable[[int], None]
"""Function that requests a total of this many bytes of disk room, and returns when the front has granted them."""


class RefusedArchiveError(Exception):
    """Raised for an archive that must not be unpacked; the message follows the name of the artifact."""


def unpack(file: IO[bytes], directory: str, bounds: UnpackBounds, ask: AskForRoom) -> None:
    """Unpack into the empty directory; raises RefusedArchiveError, or OSError if the host is at fault."""
    if not hasattr(tarfile, "data_filter"):
        raise _no_archive(f"Python {platform.python_version()} cannot unpack it safely: the pool needs 3.11.4 or newer")
    try:
        _unpack(file, directory, bounds, ask)
    except RefusedArchiveError:
        raise
    except (tarfile.OutsideDestinationError, tarfile.LinkOutsideDestinationError) as error:
        # Do not use the library's message, which reveals the directory where the pool keeps artifacts.
        raise _no_archive(f"{error.tarinfo.name!r} leads outside of it") from None
    except OSError as error:
        if error.errno in _FAULTS_OF_NAMES or error.errno in _FAULTS_OF_BOUNDS:
            raise _no_archive(f"{error.strerror}") from None
        raise
    except MemoryError:
        raise _no_archive(f"reading it takes more than {bounds.memory_bytes} bytes of memory") from None
    except RecursionError:
        raise _no_archive("its headers are nested too deeply") from None
    except (tarfile.TarError, ValueError, OverflowError, KeyError) as error:
        raise _no_archive(str(error)) from None
    except Exception as error:
        raise _no_archive(f"reading it raised {type(error).__name__}") from None


def _unpack(file: IO[bytes], directory: str, bounds: UnpackBounds, ask: AskForRoom) -> None:
    bounded = _BoundedFile(file, bounds.header_bytes)
    counts = _Counts(bounds)
    room = _Room(directory, bounds, ask)
    bounded.expect_headers()
    with _Archive.open(fileobj=bounded, mode="r:") as archive:
        while (member := archive.next()) is not None:
            archive.members.clear()
            counts.add(member)
            room.grow(member)
            bounded.expect_data()
            _extract(archive, member, directory)
            bounded.expect_headers()
    _make_read_only(directory)


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, directory: str) -> None:
    # If the link's target were missing, the library would search all headers that follow, in one go.
    if member.islnk() and not os.path.exists(os.path.join(directory, member.linkname)):
        raise _no_archive(f"linkname {member.linkname!r} not found")
    archive.extract(member, directory, filter="data")


def _make_read_only(directory: str) -> None:
    """Make the files read-only. Directories stay writable, because the store has to be able to delete their entries."""
    for parent, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                os.chmod(path, _EXECUTABLE if os.stat(path).st_mode & stat.S_IXUSR else _READABLE)


class _Archive(tarfile.TarFile):
    """Class TarFile with `members` declared. A TarFile keeps every member in this list until the list is cleared."""

    members: list[tarfile.TarInfo]


class _Counts:
    """Totals of the members so far."""

    def __init__(self, bounds: UnpackBounds) -> None:
        self._bounds = bounds
        self._members = 0
        self._names_bytes = 0
        self._total_bytes = 0

    def add(self, member: tarfile.TarInfo) -> None:
        """Count a member before any of it is written; raises RefusedArchiveError if it exceeds a bound."""
        bounds = self._bounds
        self._members += 1
        if self._members > bounds.members:
            raise _no_archive(f"it has more than {bounds.members} members")
        for name in (member.name, member.linkname):
            name_bytes = len(os.fsencode(name))
            self._names_bytes += name_bytes
            if name_bytes > bounds.name_bytes:
                raise _no_archive(f"a name has {name_bytes} bytes, the limit is {bounds.name_bytes}")
            if name.count("/") >= bounds.depth:
                raise _no_archive(f"a path has more than {bounds.depth} parts")
        if self._names_bytes > bounds.names_bytes:
            raise _no_archive(f"its names have more than {bounds.names_bytes} bytes")
        self._add_bytes(member)

    def _add_bytes(self, member: tarfile.TarInfo) -> None:
        if member.size < 0:
            raise _no_archive(f"{member.name!r} has a size of {member.size} bytes")
        for offset, size in getattr(member, "sparse", None) or ():
            if offset < 0 or size < 0 or offset + size > member.size:
                raise _no_archive(f"{member.name!r} has a part outside of its {member.size} bytes")
        self._total_bytes += member.size
        if self._total_bytes > self._bounds.total_bytes:
            raise RefusedArchiveError("unpacks to more bytes than the archive itself has")


class _Room:
    """Disk room for the unpacked entries, requested before the entries are made.

    The requested room is the most that the entries can use: a hole in a file is counted as data, and a repeated name
    is counted as another entry. The front measures the unpacked tree afterwards.
    """

    def __init__(self, directory: str, bounds: UnpackBounds, ask: AskForRoom) -> None:
        self._directory = directory
        self._bounds = bounds
        self._ask = ask
        self._granted_bytes = bounds.room_bytes
        self._blocks = 0
        self._entries = 0

    def grow(self, member: tarfile.TarInfo) -> None:
        """Request room for a member and for the missing directories above it, unless enough room is granted already."""
        block_bytes, entry_bytes = self._bounds.block_bytes, self._bounds.entry_bytes
        directories = self._missing_directories(member.name) + member.isdir()
        self._blocks += directories + -(-member.size // block_bytes)
        self._entries += directories + (not member.isdir())
        needed_bytes = max(self._blocks * block_bytes, self._entries * entry_bytes)
        if needed_bytes > self._granted_bytes:
            self._granted_bytes = needed_bytes + int(needed_bytes * _MORE_ROOM)
            self._ask(self._granted_bytes)

    def _missing_directories(self, name: str) -> int:
        missing = 0
        parent = os.path.dirname(name.strip("/"))
        while parent and not os.path.lexists(os.path.join(self._directory, parent)):
            missing += 1
            parent = os.path.dirname(parent)
        return missing


class _BoundedFile:
    """Archive that `tarfile` reads, with a bound on the headers of each member."""

    def __init__(self, file: IO[bytes], header_bytes: int) -> None:
        self._file = file
        self._header_bytes = header_bytes
        self._left_bytes: int | None = None

    def expect_headers(self) -> None:
        """Expect the headers of a member, which share one bound."""
        self._left_bytes = self._header_bytes

    def expect_data(self) -> None:
        """Expect the data of a member, which `tarfile` reads in small parts."""
        self._left_bytes = None

    def read(self, size: int) -> bytes:
        """Read `size` bytes; raises RefusedArchiveError before more than the bound is allocated."""
        limit_bytes = _MAX_DATA_READ_BYTES if self._left_bytes is None else self._left_bytes
        if not 0 <= size <= limit_bytes:
            raise _no_archive(f"the headers of a member have more than {self._header_bytes} bytes")
        if self._left_bytes is not None:
            self._left_bytes -= size
        return self._file.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _no_archive(reason: str) -> RefusedArchiveError:
    return RefusedArchiveError(f"is not an archive that can be unpacked: {reason}")
