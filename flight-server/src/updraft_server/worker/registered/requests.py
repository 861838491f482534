# SPDX-License-Identifier: Apache-2.0
"""The batches of an exchange on their way to a registered function."""

import time
from collections.abc import Iterator

import pyarrow as pa

from updraft.errors import UpdraftError
from updraft_server.worker.exchange import Exchange
from updraft_server.worker.registered.functions import AnyFunction


class Requests:
    """Takes batches from an exchange."""

    def __init__(self, function: AnyFunction, exchange: Exchange) -> None:
        self._function = function
        self._exchange = exchange
        self.waited_seconds = 0.0
        """For the client."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Each batch as it came; raises UpdraftError."""
        while True:
            asked = time.monotonic()
            request = self._exchange.take()
            self.waited_seconds += time.monotonic() - asked
            if request is None:
                return
            yield request.batch

    def checked(self) -> Iterator[pa.RecordBatch]:
        """Each batch in the types of the function's arguments; raises UpdraftError."""
        for batch in self.batches():
            try:
                checked = self._function.checked(batch)
            except UpdraftError as error:
                # It counts whatever the function makes of it.
                self._exchange.fail(error)
            yield checked
