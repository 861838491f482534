# SPDX-License-Identifier: Apache-2.0
"""Parser and checks of the artifacts that a command lists. Untrusted clients choose the names, which become paths."""

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from updraft.errors import LimitError, ProtocolError
from updraft.v1.exchange_pb2 import Artifact, SessionFunction

Name = TypeVar("Name", int, str)

MAX_ARTIFACTS = 4096
_MAX_NAME_BYTES = 255
_DIGEST_BYTES = hashlib.sha256().digest_size


class Form(enum.Enum):
    """Form of an artifact on disk."""

    FILE = "file"
    DIRECTORY = "directory"


class ArtifactKey(NamedTuple):
    """Identity of an artifact, derived from its bytes and form: artifacts with equal keys are the same."""

    sha256: bytes
    size_bytes: int
    form: Form

    def __str__(self) -> str:
        return f"{self.sha256.hex()}-{self.size_bytes}-{self.form.value}"


@dataclass(frozen=True, slots=True)
class Needs:
    """Artifacts of one exchange, by their role."""

    broadcasts: Mapping[int, ArtifactKey] = field(default_factory=dict)
    """Broadcast variables, by id."""
    files: Mapping[str, ArtifactKey] = field(default_factory=dict)
    """Files and archives, by the name under which the function finds them."""

    @property
    def keys(self) -> frozenset[ArtifactKey]:
        """All artifacts, each once."""
        return frozenset((*self.broadcasts.values(), *self.files.values()))

    @property
    def file_set(self) -> str:
        """Name of this set of files. Sets with equal names and bytes have the same name; empty without files."""
        if not self.files:
            return ""
        lines = (f"{key} {name}\n" for name, key in sorted(self.files.items()))
        return hashlib.sha256("".join(lines).encode()).hexdigest()


NO_NEEDS = Needs()


def parse_needs(function: SessionFunction) -> Needs:
    """Return the artifacts that a session function lists.

    Raises ProtocolError for a malformed artifact or a name that is not a plain file name, and LimitError for more than
    `MAX_ARTIFACTS`.
    """
    if not function.artifacts and not function.python_includes:
        return NO_NEEDS
    if len(function.artifacts) > MAX_ARTIFACTS:
        raise LimitError(f"the function needs {len(function.artifacts)} artifacts, the limit is {MAX_ARTIFACTS}")
    broadcasts: dict[int, ArtifactKey] = {}
    files: dict[str, ArtifactKey] = {}
    forms: dict[bytes, ArtifactKey] = {}
    for artifact in function.artifacts:
        key = _key(artifact)
        if forms.setdefault(key.sha256, key) != key:
            raise ProtocolError(f"artifact {key.sha256.hex()} is listed with two sizes or as file and directory")
        if artifact.WhichOneof("role") == "broadcast_id":
            if artifact.broadcast_id < 0:
                # PySpark's worker interprets a negative id as an order to drop a variable.
                raise ProtocolError(f"{artifact.broadcast_id} is not the id of a broadcast variable")
            _add(broadcasts, artifact.broadcast_id, key)
        else:
            _add(files, _plain_name(artifact.file_name or artifact.directory_name), key)
    for name in function.python_includes:
        _plain_name(name)
    return Needs(broadcasts, files)


def _key(artifact: Artifact) -> ArtifactKey:
    if len(artifact.sha256) != _DIGEST_BYTES or artifact.size_bytes < 0:
        raise ProtocolError(
            f"an artifact has a digest of {len(artifact.sha256)} bytes and a size of {artifact.size_bytes}: "
            f"expected a digest of {_DIGEST_BYTES} bytes and a size of at least 0"
        )
    role = artifact.WhichOneof("role")
    if role is None:
        raise ProtocolError(f"the command does not say what artifact {artifact.sha256.hex()} is for")
    form = Form.DIRECTORY if role == "directory_name" else Form.FILE
    return ArtifactKey(artifact.sha256, artifact.size_bytes, form)


def _add(known: dict[Name, ArtifactKey], name: Name, key: ArtifactKey) -> None:
    if known.setdefault(name, key) != key:
        raise ProtocolError(f"two artifacts are listed as {name!r}")


def _plain_name(name: str) -> str:
    """Return the name if it is a plain directory entry; raise ProtocolError for a path, `.` or `..`."""
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(name.encode()) > _MAX_NAME_BYTES:
        raise ProtocolError(f"{name[:_MAX_NAME_BYTES]!r} is not the plain name of a file")
    return name
