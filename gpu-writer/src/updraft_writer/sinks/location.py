# SPDX-License-Identifier: Apache-2.0
"""Which paths a client may have written: those under the roots that the writer was started with, and nothing else."""

from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from pyarrow import fs

from updraft.errors import SinkError, WriteRefusedError
from updraft_writer.sinks.local import LocalStorage
from updraft_writer.sinks.remote import RemoteStorage
from updraft_writer.sinks.sink import Storage


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
    pure = PurePosixPath("/" + path.strip("/"))
    if ".." in pure.parts or "\0" in path:
        raise ValueError(f"{text!r} has a part that leads elsewhere")
    return Location(scheme, authority, pure)


class Roots:
    """The places below which files may be written."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        """Parse the roots; raises ValueError."""
        self._roots = tuple(_resolved(parse_location(root)) for root in roots)

    def storage(self, path: str) -> Storage:
        """The storage for a file; raises WriteRefusedError outside the roots and SinkError for what is not reached."""
        try:
            location = _resolved(parse_location(path))
        except ValueError as error:
            raise WriteRefusedError(f"no path to write: {error}") from None
        if not any(root.contains(location) for root in self._roots):
            allowed = ", ".join(map(str, self._roots)) or "none: it was started without --root"
            raise WriteRefusedError(f"{path} lies outside the roots of this writer ({allowed})")
        if location.scheme == "file":
            return LocalStorage(Path(location.path))
        try:
            file_system, inner_path = _file_system(location)
        except (OSError, ValueError) as error:
            raise SinkError(f"cannot reach {path}: {error}") from error
        return RemoteStorage(file_system, inner_path)


def _file_system(location: Location) -> tuple[fs.FileSystem, str]:
    file_system, path = fs.FileSystem.from_uri(f"{location.scheme}://{location.authority}{quote(str(location.path))}")
    if isinstance(file_system, fs.S3FileSystem):
        # What is uploaded behind our back is in memory without a reservation.
        file_system = fs.S3FileSystem(region=file_system.region, background_writes=False)
    return file_system, path


def _resolved(location: Location) -> Location:
    """A local place without symbolic links: where a file really goes is what counts."""
    if location.scheme != "file":
        return location
    return location._replace(authority="", path=PurePosixPath(Path(location.path).resolve()))
