# SPDX-License-Identifier: Apache-2.0
"""Remote storage, accessed through pyarrow.fs: s3, gs, abfs, hdfs.

These file systems retry their own requests. A receipt means that the stream was closed successfully: an object store
then has every byte. On HDFS, pyarrow can call neither hflush nor hsync, so the data nodes may hold the last blocks in
memory (`dfs.datanode.synconclose` makes the data nodes sync).
"""

import enum
import errno
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

import structlog
from pyarrow import fs

from updraft_writer.pieces import Piece
from updraft_writer.sinks.sink import AsideError, Step, hidden_name, is_published, may_be_repeated, reason_of

# Types of file systems with directories. In an object store, creating a directory would leave an empty object.
_WITH_DIRECTORIES = ("hdfs", "local")
# Azure's stream uploads blocks of this size in the background. The blocks stay in memory that no reservation covers.
_AZURE_BLOCK_BYTES = 10 * 1024 * 1024

_log = structlog.get_logger(__name__)


class _Phase(enum.Enum):
    """Progress of writing a file."""

    NEW = "new"
    WRITING = "writing"
    # Set even if closing failed: a second close would succeed and hide the loss.
    CLOSED = "closed"


class _Found(NamedTuple):
    """Size and modification time of a stored file, which distinguish a new file from the previous one."""

    size_bytes: int
    mtime_ns: int


class RemoteStorage:
    """Remote file, streamed to a hidden object that is then moved to the final name."""

    def __init__(self, file_system: fs.FileSystem, path: str, *, in_table: bool = False) -> None:
        self.file_system = file_system
        self._path = path
        self._directory, _, name = path.rpartition("/")
        unique = uuid4().hex
        self._hidden = self._beside(hidden_name(name, unique, in_table=in_table))
        self._replaced = self._beside(hidden_name(name, f"{unique}.replaced"))
        self._stream: Any = None
        self._phase = _Phase.NEW
        # File that had the final name before the rename, and the error of a failed rename that may have taken effect.
        self._before: _Found | None = None
        self._doubt: OSError | None = None
        self._set_aside = False
        self._size_bytes = 0
        self._unawaited_bytes = 0

    def open(self) -> None:
        """Create the hidden object; raises OSError."""
        if self._directory and self.file_system.type_name in _WITH_DIRECTORIES:
            self.file_system.create_dir(self._directory, recursive=True)
        self._stream = self.file_system.open_output_stream(self._hidden)
        self._phase = _Phase.WRITING

    def write(self, piece: Piece) -> None:
        """Append a piece; raises OSError."""
        self._stream.write(piece)
        self._size_bytes += len(piece)
        self._await_blocks(len(piece))

    def complete(self) -> None:
        """Close the stream. May raise OSError."""
        self._phase = _Phase.CLOSED
        self._stream.close()

    def publish(self) -> None:
        """Move the hidden object to the final name; raises OSError and InDoubtError."""
        if self._doubt is None or not self._is_published():
            self._rename()
        if self._doubt is not None:
            self._remove_leftover(self._hidden)
        if self._set_aside:
            self._remove_leftover(self._replaced)

    def discard(self) -> None:
        """Remove the hidden object; raises OSError."""
        if self._phase is _Phase.NEW:
            return
        if self._phase is _Phase.WRITING:
            self._phase = _Phase.CLOSED
            # If a write to the stream failed, closing the stream may fail too, and may nevertheless have completed the
            # object.
            with suppress(OSError):
                self._stream.close()
        try:
            self._remove(self._hidden)
        finally:
            self._bring_back()

    def _bring_back(self) -> None:
        """Rename the previous file back. If this rename fails, log where the file is and raise OSError."""
        if not self._set_aside:
            return
        try:
            if self._look(self._path) is None:
                self.file_system.move(self._replaced, self._path)
            self._set_aside = False
        except OSError as error:
            _log.error(
                "a file that was to be replaced is under a hidden name: rename it back",
                path=self._path,
                hidden=self._replaced,
                reason=reason_of(error),
            )
            raise

    def _await_blocks(self, written_bytes: int) -> None:
        self._unawaited_bytes += written_bytes
        if self.file_system.type_name == "abfs" and self._unawaited_bytes >= _AZURE_BLOCK_BYTES:
            self._stream.flush()
            self._unawaited_bytes = 0

    def _rename(self) -> None:
        self._before = self._look(self._path)
        try:
            if self.file_system.type_name == "hdfs" and self._before is not None:
                # A name node refuses to rename over an existing file. pyarrow would then delete the existing file and
                # repeat the rename. If that rename failed too, both files would be lost. So move the old file aside
                # until the new file has the name. If the rename of the new file fails, move the old file back.
                self._set_aside = True
                self.file_system.move(self._path, self._replaced)
                self._before = None
            self._move()
        except OSError as error:
            # The storage may have moved the file even though its reply was lost.
            self._doubt = error
            if not self._is_published():
                self._check_aside(error)
                raise

    def _check_aside(self, error: OSError) -> None:
        """Raise AsideError if the previous file still has its hidden name.

        If publishing must not be repeated after this error, first try to move the previous file back.
        """
        if self._set_aside and not may_be_repeated(Step.PUBLISH, error):
            with suppress(OSError):
                self._bring_back()
        if self._set_aside:
            raise AsideError(self._replaced, error) from error

    def _move(self) -> None:
        try:
            self.file_system.move(self._hidden, self._path)
        except NotImplementedError:
            # Azure accounts without a hierarchical namespace cannot rename.
            self.file_system.copy_file(self._hidden, self._path)
            self.file_system.delete_file(self._hidden)

    def _is_published(self) -> bool:
        return is_published(self._names_held, self._doubt)

    def _names_held(self) -> tuple[bool, bool]:
        final, hidden = self._look(self._path), self._look(self._hidden)
        is_ours = final is not None and final.size_bytes == self._size_bytes and final != self._before
        return is_ours, hidden is not None

    def _beside(self, name: str) -> str:
        return f"{self._directory}/{name}" if self._directory else name

    def _remove_leftover(self, path: str) -> None:
        """Remove a hidden file that publishing left behind. A failure is only logged: the final file is complete."""
        try:
            self._remove(path)
        except OSError as error:
            _log.warning("cannot remove the hidden name of a published file", hidden=path, reason=reason_of(error))

    def _remove(self, path: str) -> None:
        if self._look(path) is not None:
            self.file_system.delete_file(path)

    def _look(self, path: str) -> _Found | None:
        """Look up a name. Return None if the name does not exist; raise OSError if the storage does not answer."""
        info = self.file_system.get_file_info(path)
        if info.type != fs.FileType.NotFound:
            return _Found(info.size, info.mtime_ns)
        if self.file_system.type_name == "hdfs":
            self._check_missing(path)
        return None

    def _check_missing(self, path: str) -> None:
        """Raise OSError if a file that a lookup reported as missing can be opened after all.

        On HDFS, pyarrow reports a failed lookup as a missing file.
        """
        try:
            self.file_system.open_input_file(path).close()
        except FileNotFoundError:
            return
        raise OSError(errno.EIO, f"{path} exists, but the storage cannot look it up")
