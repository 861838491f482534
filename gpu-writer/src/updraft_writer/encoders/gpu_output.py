# SPDX-License-Identifier: Apache-2.0
"""The file object to which a GPU's library writes. The library calls it from its own code, where nothing may raise."""

import io
from typing import Any

from updraft_writer.encoders.encoder import EncodedBytes


class DeviceOutput(io.RawIOBase):
    """Copies what it is given, because the library reuses its buffer. `check` raises what has failed here."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = EncodedBytes()
        self._error: BaseException | None = None

    @property
    def written_bytes(self) -> int:
        """The size of the file so far."""
        return self._bytes.written_bytes

    def write(self, data: Any) -> int:
        """Keep a copy of `data`."""
        size = memoryview(data).nbytes
        try:
            if self._error is None:
                self._bytes.write(data)
        # An exception raised here would only be printed, and the file would lack these bytes.
        except BaseException as error:
            self._error = error
        return size

    def writable(self) -> bool:
        """Always true."""
        return True

    def tell(self) -> int:
        """The offset of the next byte."""
        return self.written_bytes

    def check(self) -> None:
        """Raise what has failed in `write`."""
        if self._error is not None:
            raise self._error

    def take(self) -> list[bytes]:
        """What was written since the last call, in pieces."""
        return self._bytes.take()
