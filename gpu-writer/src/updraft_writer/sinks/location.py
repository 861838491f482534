# SPDX-License-Identifier: Apache-2.0
"""Which paths a client may have written: those under the roots that the writer was started with, and nothing else.

A root may say how its storage is reached, behind a `?` as pyarrow.fs reads it from URIs; a client's path never may.
"""

from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from pyarrow import fs

from updraft.errors import SinkError, WriteRefusedError
from updraft_writer.sinks.local import LocalStorage
from updraft_writer.sinks.remote import RemoteStorage
from updraft_writer.sinks.sink import Storage

# What a storage takes beside pyarrow.
_NEEDS = {"hdfs": "; HDFS needs Java (JAVA_HOME), libhdfs.so (ARROW_LIBHDFS_DIR) and Hadoop's jars (CLASSPATH)"}


class Location(NamedTuple):
    """A place: the scheme (`file` for this machine), the authority (a bucket, a name node) and the absolute path."""

    scheme: str
    authority: str
    path: PurePosixPath

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    def contains(self, other: "Location") -> bool:
        """Whether `other` lies below this place."""
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
    """A place below which files may be written, and how its storage is reached: as whom, with which options."""

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
            # What stands before the @ is a container or an account: a part of the place.
            return cls(place, place.authority, options)
        return cls(place._replace(authority=place.authority.rpartition("@")[2]), place.authority, options)

    def __str__(self) -> str:
        return str(self.place)

    def file_system(self, path: PurePosixPath) -> tuple[fs.FileSystem, str]:
        """The file system for a path of this root, and the path in it; raises OSError and ValueError."""
        uri = f"{self.place.scheme}://{self.authority}{quote(str(path))}"
        file_system, inner_path = fs.FileSystem.from_uri(f"{uri}?{self.options}" if self.options else uri)
        if isinstance(file_system, fs.S3FileSystem):
            # What is uploaded behind our back is in memory without a reservation; a URI cannot say so.
            make, (arguments,) = file_system.__reduce__()
            file_system = make({**arguments, "region": file_system.region, "background_writes": False})
        return file_system, inner_path


class Roots:
    """The places below which files may be written."""

    def __init__(self, roots: tuple[str, ...], *, sync_files: bool = True) -> None:
        """Parse the roots; raises ValueError."""
        self._roots = tuple(map(Root.parse, roots))
        self._sync_files = sync_files
        self._unsynced: set[Path] = set()

    def storage(self, path: str) -> Storage:
        """The storage for a file; raises WriteRefusedError outside the roots and SinkError for what is not reached."""
        try:
            location = _resolved(parse_location(path))
        except ValueError as error:
            raise WriteRefusedError(f"no path to write: {error}") from None
        root = next((root for root in self._roots if root.place.contains(location)), None)
        if root is None:
            allowed = ", ".join(map(str, self._roots)) or "none: it was started without --root"
            raise WriteRefusedError(f"{path} lies outside the roots of this writer ({allowed})")
        if location.scheme == "file":
            return LocalStorage(Path(location.path), sync=self._sync_files, unsynced=self._unsynced)
        try:
            file_system, inner_path = root.file_system(location.path)
        except (OSError, ValueError) as error:
            # The library lists every directory in which it has looked for others.
            reason = str(error).partition("\n")[0]
            raise SinkError(f"cannot reach {path}: {reason}{_NEEDS.get(location.scheme, '')}") from error
        return RemoteStorage(file_system, inner_path)


def _resolved(location: Location) -> Location:
    """A local place without symbolic links: where a file really goes is what counts."""
    if location.scheme != "file":
        return location
    return location._replace(authority="", path=PurePosixPath(Path(location.path).resolve()))
