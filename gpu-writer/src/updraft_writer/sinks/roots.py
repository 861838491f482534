# SPDX-License-Identifier: Apache-2.0
"""Roots of a writer. A client may write only below the roots with which the writer was started."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from pyarrow import fs

from updraft.errors import SinkError, WriteRefusedError
from updraft_writer.location import Location, Root, parse_location, resolved
from updraft_writer.sinks.local import LocalStorage
from updraft_writer.sinks.remote import RemoteStorage
from updraft_writer.sinks.sink import Storage

# Software that a storage needs besides pyarrow, by scheme. Error messages end with this text.
_NEEDS = {"hdfs": "; HDFS needs Java (JAVA_HOME), libhdfs.so (ARROW_LIBHDFS_DIR) and Hadoop's jars (CLASSPATH)"}


class Roots:
    """All roots below which files may be written."""

    def __init__(self, roots: tuple[str, ...], *, sync_files: bool = True) -> None:
        """Parse the roots; raises ValueError."""
        self._roots = tuple(map(Root.parse, roots))
        self._sync_files = sync_files
        self._unsynced: set[Path] = set()

    def storage(self, path: str, within: Sequence[str] = (), *, in_table: bool = False) -> Storage:
        """Return the storage for a file; raises WriteRefusedError outside the roots and SinkError if it is unreachable.

        `within` lists the caller's own roots, which lie below the writer's roots. If `within` is empty, the caller may
        write below all of the writer's roots. `in_table` means that the file belongs to a table (see `hidden_name`).
        """
        try:
            location = resolved(parse_location(path))
        except (ValueError, RuntimeError) as error:
            # Python raises RuntimeError for a loop of links.
            raise WriteRefusedError(f"no path to write: {error}") from None
        except OSError as error:
            # Another process has changed a link in the path just now, or the storage has failed.
            raise SinkError(f"cannot reach {path}: {error.strerror}") from error
        root = next((root for root in self._roots if root.place.contains(location)), None)
        if root is None:
            allowed = ", ".join(map(str, self._roots)) or "none: it was started without --root"
            raise WriteRefusedError(f"{path} lies outside the roots of this writer ({allowed})")
        if within:
            root = _narrowed(root, location, path, within)
        if location.scheme == "file":
            return LocalStorage(
                Path(location.path),
                root=Path(root.place.path),
                sync=self._sync_files,
                unsynced=self._unsynced,
                in_table=in_table,
            )
        try:
            file_system, inner_path = _file_system(root, location.path)
        except (OSError, ValueError) as error:
            # Keep the first line only, because the further lines of the library's message list every directory that it
            # has searched.
            reason = str(error).partition("\n")[0]
            raise SinkError(f"cannot reach {path}: {reason}{_NEEDS.get(location.scheme, '')}") from error
        return RemoteStorage(file_system, inner_path, in_table=in_table)


def _narrowed(root: Root, location: Location, path: str, within: Sequence[str]) -> Root:
    """Narrow a root to the caller's own root that contains a location, so that links cannot lead out of that root.

    Raises WriteRefusedError if no root of the caller contains the location, or if a root of the caller cannot be used.
    """
    try:
        own = [resolved(parse_location(place)) for place in within]
    except (ValueError, RuntimeError, OSError) as error:
        raise WriteRefusedError(f"a root of this identity cannot be used: {error}") from None
    for place in own:
        if place.contains(location) and (place == root.place or root.place.contains(place)):
            return root._replace(place=place)
    raise WriteRefusedError(f"{path} lies outside the roots of this identity ({', '.join(within)})")


def _file_system(root: Root, path: PurePosixPath) -> tuple[fs.FileSystem, str]:
    """Return the file system for a path below a root, and the path within it; raises OSError and ValueError."""
    uri = f"{root.place.scheme}://{root.authority}{quote(str(path))}"
    file_system, inner_path = fs.FileSystem.from_uri(f"{uri}?{root.options}" if root.options else uri)
    if isinstance(file_system, fs.S3FileSystem):
        # Switch off background uploads, because they would hold memory without a reservation. A URI has no option for
        # this.
        make, (arguments,) = file_system.__reduce__()
        file_system = make({**arguments, "region": file_system.region, "background_writes": False})
    return file_system, inner_path
