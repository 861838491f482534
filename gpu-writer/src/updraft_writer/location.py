# SPDX-License-Identifier: Apache-2.0
"""Locations of files: the paths and URIs that clients send, and the writer's roots.

A root may have storage options after `?`, as in pyarrow.fs URIs. A client's path must not have options. The code that
connects to the storage is in `sinks`, so that the supervisor can check roots without loading that code.
"""

from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

# Longest path, longer than any storage accepts. Resolving a longer path would be slow, because the system looks up each
# name together with all names before it.
_MAX_CHARACTERS = 8192


class Location(NamedTuple):
    """Location of a file: scheme (`file` for this machine), authority (a bucket, a name node) and absolute path."""

    scheme: str
    authority: str
    path: PurePosixPath

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    def contains(self, other: "Location") -> bool:
        """Return whether `other` lies below this location."""
        same_storage = (self.scheme, self.authority) == (other.scheme, other.authority)
        return same_storage and self.path in other.path.parents


def parse_location(text: str) -> Location:
    """Parse an absolute path or a URI; raises ValueError with the reason."""
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(f"{text[:100]!r}... has {len(text)} characters, the limit is {_MAX_CHARACTERS}")
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
            raise ValueError("the URI contains a password: put credentials in the environment")
    pure = PurePosixPath("/" + path.strip("/"))
    if ".." in pure.parts or "\0" in path:
        raise ValueError(f"{text!r} contains .. or a null byte")
    return Location(scheme, authority, pure)


class Root(NamedTuple):
    """Location below which files may be written, with the authority and options for connecting to its storage."""

    place: Location
    authority: str
    options: str

    @classmethod
    def parse(cls, text: str) -> "Root":
        """Parse a path or a URI, with options of pyarrow.fs after `?`; raises ValueError."""
        uri, _, options = text.partition("?") if "://" in text else (text, "", "")
        place = resolved(parse_location(uri))
        if place.scheme == "file" and options:
            raise ValueError(f"{text!r} has options, but files of this machine take none")
        if place.scheme == "abfs":
            # The text before the @ is a container or an account, and belongs to the location.
            return cls(place, place.authority, options)
        return cls(place._replace(authority=place.authority.rpartition("@")[2]), place.authority, options)

    def __str__(self) -> str:
        return str(self.place)


def resolved(location: Location) -> Location:
    """Resolve the symbolic links of a local location, because checks must apply to the place that is really written.

    Raises ValueError for a loop of links.
    """
    if location.scheme != "file":
        return location
    try:
        path = Path(location.path).resolve()
    except RuntimeError as error:
        raise ValueError(str(error)) from None
    return location._replace(authority="", path=PurePosixPath(path))
