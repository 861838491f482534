# SPDX-License-Identifier: Apache-2.0
"""One artifact on its way into the store: written, checked, unpacked; kept as a whole or not at all.

Everything here blocks on the disk: `updraft_server.front.artifacts.collector` calls it in threads.
"""

import errno
import hashlib
import shutil
import tarfile
from pathlib import Path
from typing import Self

from updraft.errors import ProtocolError
from updraft_server.front.artifacts.needs import ArtifactKey, Form

_READ_ONLY = 0o444
# What an archive's own names cause, on any disk: another pool could unpack it no better.
_FAULTS_OF_NAMES = frozenset({errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENOENT})


class Arrival:
    """The bytes of an artifact, in order; a context manager that removes what was not kept."""

    def __init__(self, key: ArtifactKey, path: Path) -> None:
        self._key = key
        self._path = path
        self._directory = path.with_suffix(".unpacked")
        self._file = path.open("wb")
        self._digest = hashlib.sha256()
        self._received_bytes = 0
        self._kept = False

    @property
    def complete(self) -> bool:
        """Whether all bytes are there."""
        return self._received_bytes == self._key.size_bytes

    def add(self, offset: int, data: memoryview) -> None:
        """Take the next bytes; raises ProtocolError for a gap, a repeat, or more than was announced."""
        if offset != self._received_bytes:
            raise ProtocolError(f"{self._name} continues at byte {offset}, expected {self._received_bytes}")
        if offset + len(data) > self._key.size_bytes:
            raise ProtocolError(f"{self._name} has more than the {self._key.size_bytes} bytes that were announced")
        self._file.write(data)
        self._digest.update(data)
        self._received_bytes += len(data)

    def check(self) -> None:
        """Raises ProtocolError when the complete bytes are not what was announced."""
        self._file.close()
        if self._digest.digest() != self._key.sha256:
            raise ProtocolError(f"{self._name} arrived with the digest {self._digest.hexdigest()}")
        if self._key.form is Form.DIRECTORY:
            self._unpack()
            self._path.unlink()
        else:
            self._path.chmod(_READ_ONLY)

    def keep(self) -> Path:
        """Where the checked artifact lies from now on."""
        self._kept = True
        return self._directory if self._key.form is Form.DIRECTORY else self._path

    def _unpack(self) -> None:
        """Raises ProtocolError for an archive that reaches outside its directory or grows beyond its own size."""
        self._directory.mkdir()
        unpacked_bytes = 0
        try:
            with tarfile.open(self._path, "r:") as archive:
                for member in archive:
                    unpacked_bytes += member.size
                    if unpacked_bytes > self._key.size_bytes:
                        raise ProtocolError(f"{self._name} unpacks to more bytes than it has")
                    archive.extract(member, self._directory, filter="data")
        except (tarfile.OutsideDestinationError, tarfile.LinkOutsideDestinationError) as error:
            # Its own words say where the pool keeps artifacts.
            raise self._no_archive(f"{error.tarinfo.name!r} leads outside of it") from None
        except (tarfile.TarError, ValueError, OverflowError, KeyError) as error:
            raise self._no_archive(str(error)) from None
        except OSError as error:
            if error.errno in _FAULTS_OF_NAMES:
                raise self._no_archive(f"{error.strerror}") from None
            raise

    def _no_archive(self, reason: str) -> ProtocolError:
        return ProtocolError(f"{self._name} is not an archive that can be unpacked: {reason}")

    @property
    def _name(self) -> str:
        return f"artifact {self._key.sha256.hex()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if not self._kept:
            self._path.unlink(missing_ok=True)
            shutil.rmtree(self._directory, ignore_errors=True)
