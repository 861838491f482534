# SPDX-License-Identifier: Apache-2.0
"""Which paths a client may write: only those below the roots that the writer was started with.

A root may have options for reaching its storage (after `?`, as in pyarrow.fs URIs); a client's path may not.
"""

from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from pyarrow import fs

from updraft.errors import SinkError, WriteRefusedError
from updraft_writer.sinks.local import LocalStorage
from updraft_writer.sinks.remote import RemoteStorage
from updraft_writer.sinks.sink import Storage

# What a storage needs in addition to pyarrow.
_NEEDS = {"hdfs": "; HDFS needs Java (JAVA_HOME), libhdfs.so (ARROW_LIBHDFS_DIR) and Hadoop's jars (CLASSPATH)"}


class Location(NamedTuple):
    """A location: scheme (`file` for this machine), authority (a bucket, a name node) and absolute path."""

    scheme: str
    authority: str
    path: PurePosixPath

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    def contains(self, other: "Location") -> bool:
        """Whether `other` lies below this location."""
        same_storage = (self.scheme, self.authority) == (other.scheme, other.authority)
        return same_storage and self.path in other.path.parents


def parse_location(text: str) -> Location:
    """Parse an absolute path or a URI; raises ValueError that says what is wrong with it."""
    if text.startswith("/"):
        scheme, authority, path = "file", "", text
    else:
        # Spark writes file:/path; s3a and s3n are Hadoop's names for s3.
        parts = urlsplit(text)
        scheme = {"s3a": "s3", "s3n": "s3", "abfss": "abfs"}.get(parts.scheme, parts.scheme)
        authority, path = parts.netloc, unquote(parts.path)
        if not scheme or parts.query or parts.fragment:
            raise ValueError(f"{text!r} is neither an absolute path nor a URI without a query")
        if parts.password:
            raise ValueError("a URI with a password in it: the environment is the place for credentials")
    pure = PurePosixPath("/" + path.strip("/"))
    if ".." in pure.parts or "\0" in path:
        raise ValueError(f"{text!r} has a part that leads elsewhere")
    return Location(scheme, authority, pure)


class Root(NamedTuple):
    """A location below which files may be written, with the identity and options for reaching its storage."""

    place: Location
    authority: str
    options: str

    @classmethod
    def parse(cls, text: str) -> "Root":
        """Parse a path or a URI, with options of pyarrow.fs behind `?`; raises ValueError."""
        uri, _, options = text.partition("?") if "://" in text else (text, "", "")
        place = _resolved(parse_location(uri))
        if place.scheme == "file" and options:
            raise ValueError(f"{text!r} has options, and files of this machine have none")
        if place.scheme == "abfs":
            # What stands before the @ is a container or an account, and part of the location.
            return cls(place, place.authority, options)
        return cls(place._replace(authority=place.authority.rpartition("@")[2]), place.authority, options)

    def __str__(self) -> str:
        return str(self.place)

    def file_system(self, path: PurePosixPath) -> tuple[fs.FileSystem, str]:
        """The file system for a path of this root, and the path in it; raises OSError and ValueError."""
        uri = f"{self.place.scheme}://{self.authority}{quote(str(path))}"
        file_system, inner_path = fs.FileSystem.from_uri(f"{uri}?{self.options}" if self.options else uri)
        if isinstance(file_system, fs.S3FileSystem):
            # Background uploads would hold memory without a reservation. A URI cannot switch them off.
            make, (arguments,) = file_system.__reduce__()
            file_system = make({**arguments, "region": file_system.region, "background_writes": False})
        return file_system, inner_path


class Roots:
    """All roots below which files may be written."""

    def __init__(self, roots: tuple[str, ...], *, sync_files: bool = True) -> None:
        """Parse the roots; raises ValueError."""
        self._roots = tuple(map(Root.parse, roots))
        self._sync_files = sync_files
        self._unsynced: set[Path] = set()

    def storage(self, path: str) -> Storage:
        """The storage for a file; raises WriteRefusedError outside the roots and SinkError if it is unreachable."""
        try:
            location = _resolved(parse_location(path))
        except ValueError as error:
            raise WriteRefusedError(f"no path to write: {error}") from None
        root = next((root for root in self._roots if root.place.contains(location)), None)
        if root is None:
            allowed = ", ".join(map(str, self._roots)) or "none: it was started without --root"
            raise WriteRefusedError(f"{path} lies outside the roots of this writer ({allowed})")
        if location.scheme == "file":
            return LocalStorage(
                Path(location.path), root=Path(root.place.path), sync=self._sync_files, unsynced=self._unsynced
            )
        try:
            file_system, inner_path = root.file_system(location.path)
        except (OSError, ValueError) as error:
            # The library's message lists every directory in which it has searched.
            reason = str(error).partition("\n")[0]
            raise SinkError(f"cannot reach {path}: {reason}{_NEEDS.get(location.scheme, '')}") from error
        return RemoteStorage(file_system, inner_path)


def _resolved(location: Location) -> Location:
    """A local location with symbolic links resolved, because what counts is where a file really goes."""
    if location.scheme != "file":
        return location
    return location._replace(authority="", path=PurePosixPath(Path(location.path).resolve()))
