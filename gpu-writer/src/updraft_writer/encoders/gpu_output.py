# SPDX-License-Identifier: Apache-2.0
"""File object that a GPU's library writes to. The library calls it from its own code, where nothing may raise."""

from typing import Any

from updraft_writer.encoders.encoder import EncodedBytes


class DeviceOutput(EncodedBytes):
    """File object whose `write` never raises; `check` raises the error instead."""

    def __init__(self) -> None:
        super().__init__()
        self._error: BaseException | None = None

    def write(self, data: Any) -> int:
        """Keep a copy of `data`."""
        try:
            if self._error is None:
                super().write(data)
        # An exception raised here would only be printed, and the file would lack these bytes.
        except BaseException as error:
            self._error = error
        return memoryview(data).nbytes

    def check(self) -> None:
        """Raise the error that occurred in `write`, if any."""
        if self._error is not None:
            raise self._error
