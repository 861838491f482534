# SPDX-License-Identifier: Apache-2.0
"""Batches of an exchange on their way to a registered function."""

import time
from collections.abc import Iterator

import pyarrow as pa

from updraft.errors import UpdraftError
from updraft_server.ipc.assignment import Assignment
from updraft_server.worker.exchange import Exchange
from updraft_server.worker.registered.functions import AnyFunction
from updraft_server.worker.registered.plain_types import as_declared, retyped


class Requests:
    """Source of an exchange's batches."""

    def __init__(self, function: AnyFunction, assignment: Assignment, exchange: Exchange) -> None:
        self._function = function
        self._exchange = exchange
        self.waited_seconds = 0.0
        """Time spent waiting for the client."""
        self.schema: pa.Schema = exchange.schema
        """Schema of the batches before they are checked."""
        self._is_retyped = assignment.plain and function.argument_schema is not None
        if self._is_retyped:
            self.schema = as_declared(self.schema, function.argument_schema, zoneless_is_utc=assignment.databend)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield each batch in the types of `schema`; raises UpdraftError."""
        while True:
            asked = time.monotonic()
            request = self._exchange.take()
            self.waited_seconds += time.monotonic() - asked
            if request is None:
                return
            yield self._retyped(request.batch) if self._is_retyped else request.batch

    def checked(self) -> Iterator[pa.RecordBatch]:
        """Yield each batch in the types of the function's arguments; raises UpdraftError."""
        for batch in self.batches():
            try:
                checked = self._function.checked(batch)
            except UpdraftError as error:
                # This error counts, whatever the function makes of it.
                self._exchange.fail(error)
            yield checked

    def _retyped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return retyped(batch, self.schema)
        except UpdraftError as error:
            self._exchange.fail(error)
