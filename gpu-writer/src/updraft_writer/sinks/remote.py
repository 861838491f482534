# SPDX-License-Identifier: Apache-2.0
"""Anything that pyarrow.fs reaches: s3, gs, abfs, hdfs.

These file systems repeat their own requests. A receipt of theirs says that closing the stream has succeeded: an object
store then has every byte. On HDFS pyarrow reaches neither hflush nor hsync, so that the data nodes may hold the last
blocks in memory (`dfs.datanode.synconclose` makes them sync).
"""

from contextlib import suppress
from typing import Any
from uuid import uuid4

from pyarrow import fs

from updraft_writer.sinks.sink import hidden_name

# Object stores have none: making one would leave an empty object.
_WITH_DIRECTORIES = ("hdfs", "local")
# Azure's stream uploads each block of so many bytes behind our back, in memory without a reservation.
_AZURE_BLOCK_BYTES = 10 * 1024 * 1024


class RemoteStorage:
    """Streams to a hidden object, which is moved to the final name."""

    def __init__(self, file_system: fs.FileSystem, path: str) -> None:
        self.file_system = file_system
        self._path = path
        self._directory, _, name = path.rpartition("/")
        unique = uuid4().hex
        self._hidden = self._beside(hidden_name(name, unique))
        self._replaced = self._beside(hidden_name(name, f"{unique}.replaced"))
        self._stream: Any = None
        self._closed = False
        self._renaming = False
        self._set_aside = False
        self._unawaited_bytes = 0

    def open(self) -> None:
        """Begin the hidden object; raises OSError."""
        if self._directory and self.file_system.type_name in _WITH_DIRECTORIES:
            self.file_system.create_dir(self._directory, recursive=True)
        self._stream = self.file_system.open_output_stream(self._hidden)

    def write(self, piece: bytes) -> None:
        """Append a piece; raises OSError."""
        self._stream.write(piece)
        self._await_blocks(len(piece))

    def complete(self) -> None:
        """Close the stream; raises OSError."""
        # Also when that fails: closed again, the stream would say that all is well.
        self._closed = True
        self._stream.close()

    def publish(self) -> None:
        """Move the hidden object to the final name; raises OSError."""
        # A storage may do what it is asked for and fail to say so: then there is nothing left to rename.
        if not (self._renaming and self._exists(self._path) and not self._exists(self._hidden)):
            self._renaming = True
            self._rename()
        if self._set_aside:
            self._remove(self._replaced)

    def discard(self) -> None:
        """Remove the hidden object; raises OSError."""
        if self._stream is None:
            return
        if self._set_aside and not self._exists(self._path):
            self.file_system.move(self._replaced, self._path)
        if not self._closed:
            self._closed = True
            # What failed to be written may fail to be completed, and may have been completed all the same.
            with suppress(OSError):
                self._stream.close()
        self._remove(self._hidden)

    def _await_blocks(self, written_bytes: int) -> None:
        self._unawaited_bytes += written_bytes
        if self.file_system.type_name == "abfs" and self._unawaited_bytes >= _AZURE_BLOCK_BYTES:
            self._stream.flush()
            self._unawaited_bytes = 0

    def _rename(self) -> None:
        if self.file_system.type_name == "hdfs" and self._exists(self._path):
            # A name node renames to no name that is taken; pyarrow then deletes what has it and tries again, and both
            # are lost when that fails. So it goes aside until the new file has the name, and comes back otherwise.
            self._set_aside = True
            self.file_system.move(self._path, self._replaced)
        try:
            self.file_system.move(self._hidden, self._path)
        except NotImplementedError:
            # Azure's accounts without a hierarchical namespace.
            self.file_system.copy_file(self._hidden, self._path)
            self.file_system.delete_file(self._hidden)

    def _beside(self, name: str) -> str:
        return f"{self._directory}/{name}" if self._directory else name

    def _remove(self, path: str) -> None:
        if self._exists(path):
            self.file_system.delete_file(path)

    def _exists(self, path: str) -> bool:
        return bool(self.file_system.get_file_info(path).type != fs.FileType.NotFound)
