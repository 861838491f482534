# SPDX-License-Identifier: Apache-2.0
"""The file object that a GPU's library writes to from inside of its own code, where nothing may be raised."""

import io
from typing import Any

from updraft_writer.encoders.encoder import EncodedBytes


class DeviceOutput(io.RawIOBase):
    """Copies what it is given, which the library overwrites with the next; what fails here is raised by `check`."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = EncodedBytes()
        self._error: BaseException | None = None

    @property
    def written_bytes(self) -> int:
        """The size of the file so far."""
        return self._bytes.written_bytes

    def write(self, data: Any) -> int:
        """Keep a copy of `data`, which is bytes to whoever reads them."""
        size = memoryview(data).nbytes
        try:
            if self._error is None:
                self._bytes.write(data)
        # An exception that leaves here would be printed and forgotten, and the file would lack these bytes.
        except BaseException as error:
            self._error = error
        return size

    def writable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The offset of the next byte."""
        return self.written_bytes

    def check(self) -> None:
        """Raise what has failed while bytes were taken."""
        if self._error is not None:
            raise self._error

    def take(self) -> list[bytes]:
        """What was written since the last time, in pieces."""
        return self._bytes.take()
